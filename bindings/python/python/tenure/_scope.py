"""A cancel scope, like that of ``asyncio.timeout``: it cancels the task that entered it, and knows
its own cancellation from those of others."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tenure._errors import LoopError

_COUNTS = sys.version_info >= (3, 11)


def _cancelling(task: asyncio.Task[Any]) -> int:
    # Python 3.10 does not count.
    return task.cancelling() if sys.version_info >= (3, 11) else 0


class Scope:
    """Entered once, by one task."""

    __slots__ = ("_asked", "_before", "_marker", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._before = 0
        self._asked = 0
        # What tells this cancellation from others where they are not counted.
        self._marker: str | None = None

    @property
    def cancelled(self) -> bool:
        """Whether it has cancelled its task."""
        return self._asked > 0

    def enter(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise LoopError("this needs a task; run it with asyncio.run or create_task")
        self._task = task
        self._before = _cancelling(task)

    def cancel(self, why: str) -> None:
        """Cancels the task, if it is inside. It may be called again to insist."""
        if self._task is None or self._task.done():
            return
        self._asked += 1
        self._marker = f"{why} [scope {id(self):x}]"
        self._task.cancel(self._marker)

    async def leave(self, error: BaseException | None) -> bool:
        """The task leaves, with this exception. True if that is the cancellation of this scope,
        which nobody else is to see. Raises the cancellation of somebody else that came late."""
        task, self._task = self._task, None
        if task is None or not self._asked:
            return False
        foreign = False
        if sys.version_info >= (3, 11):
            for _ in range(self._asked):
                foreign = task.uncancel() > self._before
        if isinstance(error, asyncio.CancelledError):
            return not foreign if _COUNTS else self._marker in error.args
        # The task may have ended before its cancellation was delivered. It is taken here, so that
        # it does not strike at the next thing that the task does.
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as late:
            if foreign if _COUNTS else self._marker not in late.args:
                raise
        return False
