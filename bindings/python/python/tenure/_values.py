"""Plain values that the package hands out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure import _native

Duration = float | int | timedelta


def seconds(what: str, value: Duration | None) -> float | None:
    """A duration in seconds, whichever way it was given."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        kind = type(value).__name__
        raise TypeError(f"{what} is {value!r} ({kind}); give seconds as a number, or a timedelta")
    if not 0 <= value < float("inf"):
        raise ValueError(f"{what} is {value!r} seconds; give a number from 0 to 86400")
    return float(value)


def needed_seconds(what: str, value: Duration) -> float:
    """As ``seconds``, where there must be one."""
    given = seconds(what, value)
    if given is None:
        raise TypeError(f"{what} is None; give seconds as a number, or a timedelta")
    return given


def text(what: str, value: object) -> str:
    """A string, or a TypeError that names the argument."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r} ({type(value).__name__}); give a str")
    return value


def as_json(what: str, value: object) -> str:
    """JSON text of a value, or an exception that names the argument."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what} is no JSON: {error}") from None


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
        told = given["metadata"]
        return cls(**{**given, "metadata": None if told is None else json.loads(told)})


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
    details: dict[str, Any] = field(default_factory=dict)

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
