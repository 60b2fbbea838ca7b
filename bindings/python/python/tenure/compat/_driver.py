"""Carries out what the engine says, on the asyncio loop that it was started on.

A renewal needs the loop to turn, so a program whose loop is blocked does not renew: its lease runs
out, and :meth:`Driver.is_leader` turns false by itself before that.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import random
from collections.abc import Callable
from typing import Any

from ._clock import Clock
from ._database import Database
from ._engine import Engine, Timing

log = logging.getLogger("tenure.compat")

Callback = Callable[[], Any]


class Driver:
    """One incarnation, from a start to a stop."""

    def __init__(
        self,
        database: Database,
        timing: Timing,
        on_become: Callback | None,
        on_lose: Callback | None,
    ) -> None:
        self._database = database
        self._timing = timing
        self._callbacks = {"lead": on_become, "step_down": on_lose}
        self._clock = Clock()
        self._engine = Engine(
            timing, has_become=on_become is not None, has_lose=on_lose is not None
        )
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._become: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._over = asyncio.Event()
        self._fault: TypeError | None = None

    @property
    def is_inherited(self) -> bool:
        """This process is a fork of the one that started it, and leads nothing (L3)."""
        return self._pid != os.getpid()

    @property
    def term(self) -> int | None:
        """The term that is led, where the database issues terms."""
        if self.is_inherited or self._database.is_old:
            return None
        return self._engine.term if self._engine.is_leader(self._clock.now()) else None

    def is_leader(self) -> bool:
        """No I/O."""
        # First: a lock of the parent's may be held in a child for ever.
        if self.is_inherited:
            return False
        return bool(self._engine.handle(self._clock.now(), "ask")[0][1])

    async def run_if_leader(self, work: Callable[[], Any]) -> Any:
        """A hand-over waits for this work, at most for the drain."""
        if self.is_inherited:
            return None
        if not self._engine.handle(self._clock.now(), "begin")[0][1]:
            return None
        try:
            result = work()
            return await result if inspect.isawaitable(result) else result
        finally:
            self._give("end")

    async def start(self) -> None:
        """Returns after the first answer, and after the become callback if that was a yes."""
        self._give("start")
        over = asyncio.ensure_future(self._over.wait())
        try:
            answered = asyncio.ensure_future(self._answered.wait())
            await asyncio.wait({answered, over}, return_when=asyncio.FIRST_COMPLETED)
            answered.cancel()
            if self._fault is not None:
                raise self._fault
            if self._become is not None:
                await asyncio.wait({self._become, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()

    async def stop(self) -> None:
        """Takes no longer than min(ttl/6, 5 s). A lease that could not be given back runs out."""
        self._give("stop")
        longest = self._timing.drain * 5 / 4 / 1000
        try:
            await asyncio.wait_for(self._over.wait(), longest)
        except asyncio.TimeoutError:
            log.warning("the lease was not given back in time; it runs out")
        self._over.set()
        self._drop_timer()
        current = asyncio.current_task()
        for task in list(self._tasks):
            # A callback is the user's own; what is cancelled is a question to the database.
            if task is not current and task.get_name() == "tenure-question":
                task.cancel()

    def _give(self, event: str, *args: Any) -> None:
        for act, *values in self._engine.handle(self._clock.now(), event, *args):
            if act in ("acquire", "renew", "release"):
                self._spawn(self._ask(act, values), "tenure-question")
            elif act in ("lead", "step_down"):
                self._call(act, values)
            elif act == "overdue" and self._engine.busy > 0:
                log.error(
                    "%s: work of a reign that is over still runs; its lease is not given back",
                    self._database.service,
                )
            elif act == "wake":
                self._wake(*values)
            elif act == "sleep":
                self._drop_timer()
        if self._engine.is_over:
            self._over.set()

    def _wake(self, earliest: float, latest: float) -> None:
        self._drop_timer()
        instant = random.uniform(earliest, latest)
        delay = max(instant - self._clock.now(), 0.0) / 1000
        self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._give("tick")

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _ask(self, verb: str, values: list[Any]) -> None:
        question = getattr(self._database, verb)
        # Stamped before anything is sent: a lease counts from here (I3).
        sent_at = self._clock.now()
        answer = ("unknown", None)
        try:
            # A renewal that is lost is tried again before the step-down.
            limit = self._timing.ttl / 6 / 1000
            answer = await asyncio.wait_for(question(*values), limit)
        except asyncio.CancelledError:
            # Not by us: the loop ends. Nothing more is sent; the lease runs out.
            self._over.set()
            self._drop_timer()
            raise
        except TypeError as error:
            log.error("%s: %s", self._database.service, error)
            if not self._answered.is_set():
                self._fault = error
        except Exception as error:
            # Neither a yes nor a no (I7).
            log.warning(
                "%s: the outcome of %s is unknown: %s: %s",
                self._database.service, verb, type(error).__name__, error,
            )  # fmt: skip
        outcome, value = answer
        self._give(outcome, sent_at, *(() if outcome == "unknown" else (value,)))
        self._answered.set()

    def _call(self, act: str, values: list[Any]) -> None:
        service = self._database.service
        if act == "lead":
            log.info("%s: leads", service)
        else:
            log.info("%s: leads no more (%s)", service, values[1])
        callback = self._callbacks[act]
        if callback is None:
            return
        task = self._spawn(self._called(callback), f"tenure-{act}")
        if act == "lead":
            self._become = task

    async def _called(self, callback: Callback) -> None:
        try:
            result = callback()
            if inspect.isawaitable(result):
                await result
        except Exception:
            log.exception("%s: a callback failed", self._database.service)
        finally:
            self._give("end")
