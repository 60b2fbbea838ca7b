"""A local clock for deadlines: it never goes back, and runs as fast as the fastest that it asks."""

from __future__ import annotations

import threading
import time


def _monotonic() -> float:
    """Counts suspend where the system can tell."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class Clock:
    """Milliseconds. Whatever the wall clock or the monotonic one says has passed has passed: a
    clock that stood still, or was set back, can't lengthen a lease."""

    def __init__(self) -> None:
        self._now = 0.0
        # `is_leader` may be asked by any thread, and no reading may be lost.
        self._lock = threading.Lock()
        self._last = (_monotonic(), time.time())

    def now(self) -> float:
        with self._lock:
            read = (_monotonic(), time.time())
            passed = max(new - old for new, old in zip(read, self._last, strict=True))
            self._last = read
            self._now += max(passed, 0.0) * 1000
            return self._now
