"""Calls from tenure to Python: callbacks, handlers of messages, jobs, the work of ``once``. They run
on the loop of their election, each in a task."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from tenure import _native
from tenure._bridge import Watch, watch
from tenure._log import logger
from tenure._scope import Scope

Function = Callable[[Any], Any]
# What to call, and with what; ``None`` if nobody serves such a call.
Find = Callable[[_native.Call], "tuple[Function, Any] | None"]


async def settle(value: Any) -> Any:
    """What a function returned, awaited if it must be."""
    if inspect.isawaitable(value):
        return await _awaited(value)
    return value


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


class Server:
    """Serves the calls of one election on one loop."""

    def __init__(self, election: _native.Election, find: Find) -> None:
        self._election = election
        self._find = find
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: Watch | None = None
        self._closed = False
        self._next()

    def _next(self) -> None:
        self._watch = watch(self._election._next_call(), self._came)

    def _came(self, call: _native.Call | None, error: BaseException | None) -> None:
        if error is not None or call is None or self._closed:
            return
        task = self._loop.create_task(self._serve(call), name=f"tenure-{call.kind}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._loop.call_soon(self._again)

    def _again(self) -> None:
        if not self._closed:
            self._next()

    async def _serve(self, call: _native.Call) -> None:
        found = self._find(call)
        if found is None:
            call.end(failed=f"nobody serves {call.kind}")
            return
        function, argument = found
        scope = Scope()
        told: list[str | None] = []

        def stop(reason: str | None, error: BaseException | None) -> None:
            told.append(reason)
            scope.cancel(f"leadership ended: {reason}" if reason else "nobody waits for it")

        scope.enter()
        watching = watch(call.told_to_stop(), stop)
        error: BaseException | None = None
        try:
            await settle(function(argument))
        except BaseException as raised:
            error = raised
        watching.close()
        ours = await scope.leave(error)
        if error is None:
            call.end()
        elif ours:
            call.end(lost=True)
        elif isinstance(error, asyncio.CancelledError):
            call.end(failed="cancelled")
            raise error
        elif isinstance(error, Exception):
            logger.error("%s failed", call.kind, exc_info=error)
            call.end(failed=f"{type(error).__name__}: {error}")
        else:
            call.end(failed=f"{type(error).__name__}: {error}")
            raise error

    def close(self) -> None:
        self._closed = True
        if self._watch is not None:
            self._watch.close()
