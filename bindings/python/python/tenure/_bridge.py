"""Between an event loop and what goes on in native code.

An operation is polled on the loop's own thread. What wakes it writes to a file descriptor that
the loop waits for. So a loop that is blocked polls nothing, and answers no bell: no lease is kept
for it. And no thread of tenure's ever touches the interpreter.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Callable
from typing import Any

from tenure import _native
from tenure._errors import LoopError

Ended = Callable[[Any, BaseException | None], None]


class Bridge:
    """All that one loop waits for."""

    def __init__(self) -> None:
        self._port = _native.Port()
        self._tokens = itertools.count()
        self._waiting: dict[int, tuple[_native.Op, Ended]] = {}

    def begin(self, loop: asyncio.AbstractEventLoop, op: _native.Op, ended: Ended) -> Watch:
        """Polls an operation from now on, and calls ``ended`` with its value or its exception."""
        token = next(self._tokens)
        if not self._waiting:
            try:
                loop.add_reader(self._port.fileno(), self._ready)
            except NotImplementedError:
                kind = type(loop).__name__
                raise LoopError(
                    f"{kind} cannot wait for a file descriptor; use a loop that has add_reader"
                ) from None
        self._waiting[token] = (op, ended)
        self._poll(token, loop)
        return Watch(self, loop, token)

    def end(self, loop: asyncio.AbstractEventLoop, token: int) -> None:
        """Gives an operation up."""
        waiting = self._waiting.pop(token, None)
        if waiting is not None:
            waiting[0].close()
            self._rest(loop)

    def _ready(self) -> None:
        loop = asyncio.get_running_loop()
        for token in self._port.woken():
            try:
                self._poll(token, loop)
            except Exception as error:
                # One that fails must not keep the others from being told.
                told = {"message": "an operation of tenure failed", "exception": error}
                loop.call_exception_handler(told)

    def _poll(self, token: int, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting.get(token)
        if waiting is None:
            return
        op, ended = waiting
        try:
            done = op.poll(self._port, token)
        except BaseException as error:
            del self._waiting[token]
            ended(None, error)
        else:
            if done is None:
                return
            del self._waiting[token]
            ended(done[0], None)
        self._rest(loop)

    def _rest(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._waiting and not loop.is_closed():
            loop.remove_reader(self._port.fileno())


class Watch:
    """An operation that is polled until it ends or this is closed."""

    __slots__ = ("_bridge", "_loop", "_token")

    def __init__(self, bridge: Bridge, loop: asyncio.AbstractEventLoop, token: int) -> None:
        self._bridge, self._loop, self._token = bridge, loop, token

    def close(self) -> None:
        self._bridge.end(self._loop, self._token)


_BRIDGES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Bridge] = (
    weakref.WeakKeyDictionary()
)


def watch(op: _native.Op, ended: Ended) -> Watch:
    """Polls an operation on the running loop. ``ended`` may be called before this returns."""
    loop = asyncio.get_running_loop()
    bridge = _BRIDGES.get(loop)
    if bridge is None:
        bridge = _BRIDGES[loop] = Bridge()
    return bridge.begin(loop, op, ended)


async def wait(op: _native.Op) -> Any:
    """Waits for an operation. If the task is cancelled, the operation is given up."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def ended(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    watching = watch(op, ended)
    try:
        return await future
    finally:
        watching.close()
