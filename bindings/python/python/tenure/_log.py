"""What tenure logs goes to ``logging.getLogger("tenure")``."""

from __future__ import annotations

import logging
import os
import threading

from tenure import _native

logger = logging.getLogger("tenure")

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_readers: dict[int, _native.Log] = {}
_lock = threading.Lock()


def _level() -> int:
    return next((level for level in _LEVELS if logger.isEnabledFor(level)), logging.CRITICAL)


def _read(fd: int) -> None:
    while True:
        try:
            os.read(fd, 8)
        except OSError:
            return
        flush()


def flush() -> None:
    """Passes on what waits."""
    for level, line in _native.take_logs():
        logger.log(level, "%s", line)


def start() -> None:
    """Reads from now on, on a thread of its own: lines come from threads that no Python runs on."""
    with _lock:
        known = _readers.get(os.getpid())
        if known is not None:
            known.set_level(_level())
            return
        log = _native.Log(_level())
        _readers[os.getpid()] = log
        reader = threading.Thread(
            target=_read, args=(log.fileno(),), name="tenure-logging", daemon=True
        )
        reader.start()
