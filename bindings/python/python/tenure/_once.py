"""Work that is done once for a key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from tenure import _native

T = TypeVar("T")


@dataclass(frozen=True)
class OnceRun:
    """One run of the work for a key. ``term`` is the fencing token for whatever it writes."""

    key: str
    attempt: int
    term: int
    _call: _native.Call = field(repr=False, compare=False)

    @property
    def is_current(self) -> bool:
        """May I still finish what I started? True until trust ends."""
        return self._call.is_current()


@dataclass(frozen=True)
class OnceResult(Generic[T]):
    """What came of ``once``.

    ``outcome`` is ``ran`` (here, with its success recorded), ``already`` (a success is recorded, by
    whichever instance) or ``elsewhere`` (somebody else leads, and was not waited for). ``value`` is
    what the work returned if it ran here.
    """

    outcome: Literal["ran", "already", "elsewhere"]
    value: T | None = None

    @property
    def ran(self) -> bool:
        return self.outcome == "ran"
