"""One reign: the right to do the work, under one term, until it is lost."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tenure import _native
from tenure._bridge import Watch, wait, watch
from tenure._errors import Error, StoppedError
from tenure._log import logger
from tenure._scope import Scope


class Lost:
    """The loss of a reign, as an event that can be waited for."""

    __slots__ = ("_reason", "_waiting")

    def __init__(self) -> None:
        self._reason: str | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def reason(self) -> str | None:
        """Why: resigned, asked, not_renewed, renewal_failed or deposed. ``None`` while it leads."""
        return self._reason

    def is_set(self) -> bool:
        """Whether the reign was lost or given back."""
        return self._reason is not None

    async def wait(self) -> str:
        """Waits until the work has to stop, and says why."""
        while self._reason is None:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            finally:
                self._waiting.remove(future)
        return self._reason

    def _set(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason
            for future in self._waiting:
                if not future.done():
                    future.set_result(None)

    def __repr__(self) -> str:
        return f"<tenure.Lost {self._reason or 'not yet'}>"


class Reign:
    """The right to do the work, under one term, until it is lost.

    ``async with reign:`` registers the work. When leadership ends, the task inside is cancelled;
    what it does then has the drain to wind up in, and is cancelled once more when that is over. The
    cancellation ends at the ``async with``, and ``reign.lost.reason`` has the reason. Leaving early
    gives the lease back. So does an exception, which goes on to the caller.
    """

    def __init__(self, native: _native.Reign) -> None:
        self._native = native
        self._loop = asyncio.get_running_loop()
        self._scope: Scope | None = None
        self._watches: list[Watch] = []
        self._closed = False
        self.lost = Lost()
        # Before any code of the user's is called: work that blocks at once is noticed.
        self._watch(native.lost(), Reign._told)

    @property
    def term(self) -> int:
        """The term: the fencing token that goes with every write."""
        return self._native.term

    @property
    def is_current(self) -> bool:
        """May I still finish what I started? True until trust ends. No I/O."""
        return self._native.is_current

    @property
    def is_leader(self) -> bool:
        """May I start something? False from the step-down on. No I/O."""
        return self._native.is_leader

    @property
    def remaining(self) -> float:
        """How long trust lasts if nothing is renewed, in seconds."""
        return self._native.remaining

    async def __aenter__(self) -> Reign:
        if self._scope is not None:
            raise RuntimeError("a reign is entered once; each one is another")
        if self._closed:
            raise StoppedError("this reign was given back; take the next one")
        self._scope = Scope()
        self._scope.enter()
        if self.lost.reason is not None:
            self._scope.cancel(f"leadership ended: {self.lost.reason}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        scope = self._scope
        self._unwatch()
        try:
            ours = scope is not None and await scope.leave(error)
            if isinstance(error, asyncio.CancelledError) and not ours:
                return False
            await self.resign()
            return ours
        finally:
            self._close()

    async def resign(self) -> None:
        """Says that the work has ended, and waits until the lease is given back. A store that can't
        be told is logged: the lease then runs out by itself."""
        if self._closed:
            return
        self._unwatch()
        self._closed = True
        self.lost._set("resigned")
        try:
            await wait(self._native.resign())
        except StoppedError:
            pass  # The interpreter ends, and gives it back.
        except Error as error:
            logger.warning("the lease of term %d was not given back: %s", self.term, error)

    def _told(self, reason: str) -> None:
        self.lost._set(reason)
        if self._scope is not None:
            self._scope.cancel(f"leadership ended: {reason}")
        self._watch(self._native.ended(), Reign._over)

    def _over(self, reason: str) -> None:
        if self._scope is not None:
            logger.error(
                "the work of term %d has not ended in time (%s); it is cancelled once more",
                self.term,
                reason,
            )
            self._scope.cancel(f"the time to wind up is over: {reason}")

    def _watch(self, op: _native.Op, then: Callable[[Reign, str], None]) -> None:
        # Weakly: a reign that nobody holds is over.
        me = weakref.ref(self)

        def ended(value: Any, error: BaseException | None) -> None:
            reign = me()
            if reign is not None and not reign._closed:
                then(reign, value if error is None else "not_renewed")

        self._watches.append(watch(op, ended))

    def _unwatch(self) -> None:
        for watching in self._watches:
            watching.close()
        self._watches.clear()

    def _close(self) -> None:
        """Says that the work has ended, and waits for nothing."""
        if not self._closed:
            self._unwatch()
            self._closed = True
            self._native.drop()
            self.lost._set("resigned")

    def __del__(self) -> None:
        # Perhaps on another thread. A task that waits for the loss must not hold the reign.
        watches, loop = getattr(self, "_watches", None), getattr(self, "_loop", None)
        if watches and loop is not None and not self._closed:
            self._native.drop()
            try:
                for watching in watches:
                    loop.call_soon_threadsafe(watching.close)
            except RuntimeError:
                pass  # The loop is closed, and what it polled is gone with it.

    def __repr__(self) -> str:
        state = self.lost.reason or ("leading" if self.is_current else "over")
        return f"<tenure.Reign term={self.term} {state}>"
