"""What can go wrong. Losing an election is none of it."""

from __future__ import annotations


class Error(Exception):
    """What went wrong, in a sentence that says what to do about it.

    ``kind`` is one word for programs; ``retryable`` says whether the same call may succeed later
    without anybody changing anything; ``store`` names the kind of store that it came from, if any.
    """

    kind: str = "error"
    retryable: bool = False
    store: str | None = None


class ConfigError(Error, ValueError):
    """What was asked for cannot be: a name, a duration, a URL. Fix the input."""

    kind = "config"


class UnavailableError(Error):
    """The store did not answer, or cannot now. Try again."""

    kind = "unavailable"
    retryable = True


class DeniedError(Error):
    """The store says no: a missing privilege, a read-only file."""

    kind = "denied"


class UnsupportedError(Error):
    """This store, or this version of it, has no such thing."""

    kind = "unsupported"


class CorruptError(Error):
    """What the store holds is not what tenure wrote."""

    kind = "corrupt"


class StoppedError(Error):
    """The election is not running: it was stopped, or not started yet."""

    kind = "stopped"


class CrashedError(Error):
    """What acts for the candidate has died. Make a new one."""

    kind = "crashed"


class ForkedError(Error):
    """This was made before a fork and belongs to the parent process. Make a new one."""

    kind = "forked"


class LoopError(Error, RuntimeError):
    """An election is used on another event loop than the one that it runs on."""

    kind = "loop"


class StaleTerm(Error):
    """The term is not the current one: a write under it was refused."""

    kind = "stale_term"


class OnceFailed(Error):
    """All tries of the work for a key are used up without success."""

    kind = "once_failed"

    def __init__(self, message: str, attempts: int) -> None:
        super().__init__(message)
        self.attempts = attempts


_CLASSES: dict[str, type[Error]] = {
    one.kind: one
    for one in (
        ConfigError,
        UnavailableError,
        DeniedError,
        UnsupportedError,
        CorruptError,
        StoppedError,
        CrashedError,
        ForkedError,
    )
}


def _make(  # pyright: ignore[reportUnusedFunction]: the native part calls it
    kind: str, message: str, retryable: bool, store: str | None
) -> Error:
    """The exception for an error of the native part."""
    error = _CLASSES.get(kind, Error)(message)
    error.retryable = retryable
    error.store = store
    return error
