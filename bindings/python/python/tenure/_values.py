"""Plain values that the package hands out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure import _native

@dataclass(frozen=True)
class Timing:
    """The durations of a lease, in seconds."""

    ttl: float
    renew_every: float
    margin: float
    drain: float


@dataclass(frozen=True)
class Leader:
    """Who leads, as the store told it at one instant."""

    id: str
    label: str
    term: int | None
    remaining: float
    since_unix_ms: int | None
    metadata: dict[str, Any] | None

    @classmethod
    def _of(cls, given: dict[str, Any] | None) -> Leader | None:
        if given is None:
            return None
        told: str | None = given["metadata"]
        values: dict[str, Any] = {**given, "metadata": None if told is None else json.loads(told)}
        return cls(**values)


@dataclass(frozen=True)
class Event:
    """Something that happened to this candidate in this election.

    ``name`` is one of campaigning, elected, listen_failed, renewal_failed, draining, stepped_down,
    leader_changed, store_lost, store_back, settling, store_clock_stepped, duplicate_label,
    term_fell and missed. What an event has no value for is ``None``; ``details`` has the rest.
    """

    name: str
    term: int | None = None
    reason: str | None = None
    leader: Leader | None = None
    error: Exception | None = None
    left: float | None = None
    details: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def _of(cls, given: tuple[str, dict[str, Any]]) -> Event:
        name, rest = given[0], dict(given[1])
        return cls(
            name,
            term=rest.pop("term", None),
            reason=rest.pop("reason", None),
            leader=Leader._of(rest.pop("leader", None)),
            error=rest.pop("error", None),
            left=rest.pop("left", None),
            details=rest,
        )


@dataclass(frozen=True)
class Posted:
    """What became of a post."""

    id: int
    is_new: bool


@dataclass(frozen=True)
class Message:
    """A message, as a handler gets it. ``term`` is the fencing token for whatever it writes."""

    channel: str
    payload: Any
    term: int
    attempt: int
    id: int | None
    key: str | None
    _call: _native.Call = field(repr=False, compare=False)

    @property
    def is_current(self) -> bool:
        """May I still finish what I started? True until trust ends."""
        return self._call.is_current()

    @classmethod
    def _of(cls, call: _native.Call) -> Message:
        given = call.argument
        return cls(**{**given, "payload": json.loads(given["payload"])}, _call=call)
