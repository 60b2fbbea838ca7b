"""The end of the interpreter: leases are given back, in bounded time."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import TYPE_CHECKING

from tenure import _log, _native

if TYPE_CHECKING:
    from tenure._election import Election

# How much longer than the drain of its elections the interpreter waits for the store.
_GRACE_S = 1.0

_running: weakref.WeakSet[Election] = weakref.WeakSet()
_registered: set[int] = set()


def watch(election: Election) -> None:
    """Has this election stopped at the end, if it is not by then."""
    _running.add(election)
    if os.getpid() not in _registered:
        _registered.add(os.getpid())
        atexit.register(_stop, os.getpid())


def forget(election: Election) -> None:
    """It was stopped."""
    _running.discard(election)


def _stop(pid: int) -> None:
    # A forked child has the handlers of its parent, and nothing to give back.
    if os.getpid() != pid:
        return
    left = list(_running)
    if left:
        for election in left:
            election._let_go()
        drain = max(election._timing[3] for election in left)
        late = _native.stop_all(list(left), drain + _GRACE_S)
        if late:
            _log.logger.warning("%d leases were not given back at exit and run out", late)
    _log.flush()
