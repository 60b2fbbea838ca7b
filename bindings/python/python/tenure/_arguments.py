"""What users give, looked at before it goes on to native code.

This is loaded with every election, so it imports nothing that it can do without: `datetime` alone is
as large as all of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

    Duration = float | int | timedelta


def seconds(what: str, value: Duration | None) -> float | None:
    """A duration in seconds, whichever way it was given."""
    if value is None:
        return None
    total = getattr(value, "total_seconds", None)
    if total is not None:
        return float(total())
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


def number(what: str, value: int | None, least: int, most: int) -> int | None:
    """A whole number in these bounds, or an exception that names the argument and both of them."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is {value!r} ({type(value).__name__}); give a whole number")
    if not least <= value <= most:
        raise ValueError(f"{what} is {value}; give a number from {least} to {most}")
    return value


def text(what: str, value: object) -> str:
    """A string, or a TypeError that names the argument."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r} ({type(value).__name__}); give a str")
    return value


def as_json(what: str, value: object) -> str:
    """JSON text of a value, or an exception that names the argument."""
    import json

    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what} is no JSON: {error}") from None
