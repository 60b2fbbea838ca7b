"""Elections for programs with threads: the same words as for asyncio, and calls that wait.

>>> import tempfile, tenure.blocking
>>> url = "sqlite:" + tempfile.mkdtemp() + "/tenure.db"
>>> with tenure.blocking.Election("invoices", store=url) as election:
...     for reign in election.reigns():
...         with reign:
...             print("sending invoices as term", reign.term)
...         break
sending invoices as term 1

An election has a thread of its own, with an event loop, which answers for this interpreter: a lease
is not kept while C code holds the GIL. Callbacks and handlers run on a second thread, one after the
other. Nobody can cancel a thread: look at ``reign.lost``, or wait for it. As long as work is
registered, the lease is not given back.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tenure import _election, _native
from tenure._candidate import Candidate
from tenure._errors import Error, StoppedError
from tenure._log import logger
from tenure._reign import Reign as AsyncReign

if TYPE_CHECKING:
    from tenure._arguments import Duration
    from tenure._once import OnceResult, OnceRun
    from tenure._values import Event, Leader, Message, Posted, Timing

__all__ = ["Candidate", "Election", "Lost", "Reign"]

T = TypeVar("T")
Work = TypeVar("Work", bound=Callable[["Reign"], Any])
Handler = TypeVar("Handler", bound="Callable[[Message], Any]")


class _Thread:
    """The event loop of one election."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        # Held while a call is handed over, so that none is after the end. A signal handler may stop
        # the election while this very thread holds it.
        self._lock = threading.RLock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"tenure-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            # Those who wait for something here are told that it does not come.
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self.loop.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this would wait for the thread that it is called on")
        with self._lock:
            try:
                if not self._ended:
                    return asyncio.run_coroutine_threadsafe(work, self.loop)
            except RuntimeError:
                # Stopped just now by a signal handler, and the loop is closed.
                if not self._ended:
                    raise
        work.close()
        raise StoppedError("the election was stopped")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it there and waits for it."""
        future = self.submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise StoppedError("the election was stopped meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self.loop.call_soon_threadsafe(self._last_call)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @property
    def ended(self) -> bool:
        return self._ended

    def _last_call(self) -> None:
        # Once around: what was handed over before is a task by then.
        self.loop.call_soon(self.loop.stop)


class Lost:
    """The loss of a reign, as an event that can be waited for."""

    __slots__ = ("_event", "_reason")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why: resigned, asked, not_renewed, renewal_failed or deposed. ``None`` while it leads."""
        return self._reason

    def is_set(self) -> bool:
        """Whether the reign was lost or given back."""
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the work has to stop, or so many seconds. Says whether it has to."""
        return self._event.wait(timeout)

    def _set(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason
            self._event.set()

    def __repr__(self) -> str:
        return f"<tenure.blocking.Lost {self._reason or 'not yet'}>"


class Reign:
    """The right to do the work, under one term, until it is lost.

    ``with reign:`` registers the work: the lease is not given back before the end of it. Look at
    ``reign.lost`` often, and stop when it is set: the work then has the drain to wind up in.
    Leaving early gives the lease back. So does an exception, which goes on to the caller.
    """

    def __init__(self, reign: AsyncReign, thread: _Thread) -> None:
        self._reign, self._thread = reign, thread
        self.lost = Lost()
        self._entered = False

    @property
    def term(self) -> int:
        """The term: the fencing token that goes with every write."""
        return self._reign.term

    @property
    def is_current(self) -> bool:
        """May I still finish what I started? True until trust ends. No I/O."""
        return self._reign.is_current

    @property
    def is_leader(self) -> bool:
        """May I start something? False from the step-down on. No I/O."""
        return self._reign.is_leader

    @property
    def remaining(self) -> float:
        """How long trust lasts if nothing is renewed, in seconds."""
        return self._reign.remaining

    def __enter__(self) -> Reign:
        if self._entered:
            raise RuntimeError("a reign is entered once; each one is another")
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.resign()

    def resign(self) -> None:
        """Says that the work has ended, and waits until the lease is given back."""
        try:
            self._thread.call(self._reign.resign())
        except Error as error:
            # Stopped: the loop is gone, and nobody else uses the reign. Or forked, and not ours.
            logger.debug("the reign of term %d: %s", self.term, error)
            self._reign._close()
        self.lost._set("resigned")

    def __repr__(self) -> str:
        return f"<tenure.blocking.Reign term={self.term} {self.lost.reason or 'leading'}>"


class _Inner(_election.Election):
    """The election on its loop. Functions of the user's run on the second thread."""

    _callers: concurrent.futures.ThreadPoolExecutor | None = None

    def _find(self, call: _native.Call) -> tuple[Callable[[Any], Any], Any] | None:
        found = super()._find(call)
        if found is None or call.kind == "once":
            return found
        function, argument = found

        async def there(argument: Any) -> None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._callers, function, argument)

        return there, argument


class Election:
    """One candidate's part in one election, for programs with threads. The arguments are those of
    :class:`tenure.Election`; callbacks are plain functions."""

    def __init__(
        self, name: str, store: str | Candidate | None = None, **arguments: Any
    ) -> None:
        self._inner = _Inner(name, store, **arguments)
        self._thread: _Thread | None = None
        self._lock = threading.RLock()
        self._leads: list[Callable[[Reign], Any]] = []
        self._lead_thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._stopped = threading.Event()

    @property
    def name(self) -> str:
        """The name of the election."""
        return self._inner.name

    @property
    def id(self) -> str | None:
        """Who this is, once the election was started."""
        return self._inner.id

    @property
    def is_leader(self) -> bool:
        """May I start something? False by itself when trust ends. No I/O."""
        return self._inner.is_leader

    @property
    def term(self) -> int | None:
        """The term this instance leads now, or ``None``."""
        return self._inner.term

    @property
    def timing(self) -> Timing:
        """The durations of its lease."""
        return self._inner.timing

    def start(self) -> None:
        """Takes part from now on. Returns after the first attempt."""
        self._call(self._inner.start())
        self._stopped.clear()
        self._failure = None
        if self._leads:
            self._begin_leading()

    def stop(self) -> None:
        """Takes no further part: tells the work to stop, waits for it, gives the lease back."""
        self._inner._check()
        with self._lock:
            thread = self._thread
        if thread is None:
            return
        try:
            thread.call(self._inner.stop())
        finally:
            self._stopped.set()
            self._end(thread)

    def run(self) -> None:
        """Starts it, and waits until it is stopped. For programs that are all ``lead``."""
        with self:
            self._stopped.wait()

    def __enter__(self) -> Election:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except Error as trouble:
            logger.warning("stopping the election %r: %s", self.name, trouble)
        failure, self._failure = self._failure, None
        if failure is not None and error is None:
            raise failure

    def reigns(self) -> Iterator[Reign]:
        """Each time this instance leads, until the election is stopped."""
        inner, last = self._inner, None
        source = inner.reigns()

        async def following() -> AsyncReign | None:
            try:
                return await source.__anext__()
            except StopAsyncIteration:
                return None

        while True:
            try:
                found = self._call(following())
            except StoppedError:
                return
            if found is None:
                return
            with self._lock:
                thread = self._thread
            if thread is None:
                return
            last = Reign(found, thread)
            thread.submit(_tell(found, last.lost))
            yield last

    def lead(self, work: Work) -> Work:
        """Runs a function each time this instance leads, on a thread of its own, with the reign.
        It returns when ``reign.lost`` is set. If it raises, leadership is given up, the election is
        stopped, and the exception is raised where the ``with`` ends."""
        if not callable(work):
            raise TypeError(f"lead is given {work!r}; give a function")
        self._leads.append(work)
        with self._lock:
            running = self._thread is not None and self._lead_thread is None
        if running:
            self._begin_leading()
        return work

    def run_if_leader(self, work: Callable[..., T], *args: Any) -> T | None:
        """Runs a function on this thread if this instance leads, and returns what it returned; else
        ``None``. The lease is not given back before it has ended. ``None`` is returned, too, if
        trust ended before it did."""
        self._inner._check()
        with self._lock:
            thread = self._thread
        if thread is None:
            return None
        entered, ended = concurrent.futures.Future[bool](), asyncio.Event()

        async def hold() -> None:
            entered.set_result(True)
            # Not given up when its time is over: the thread works on, and is waited for.
            while not ended.is_set():
                try:
                    await ended.wait()
                except asyncio.CancelledError:
                    late.append(True)
                    if thread.loop.is_closed() or thread.ended:
                        raise

        late: list[bool] = []

        async def enter() -> bool:
            await self._inner.run_if_leader(hold)
            if not entered.done():
                entered.set_result(False)
            return not late

        holding = thread.submit(enter())
        if not entered.result():
            return None
        try:
            value = work(*args)
        finally:
            try:
                thread.loop.call_soon_threadsafe(ended.set)
                in_time = holding.result()
            except (RuntimeError, concurrent.futures.CancelledError):
                # The election was stopped meanwhile, and did not wait for longer than the drain.
                in_time = False
        return value if in_time else None

    def once(
        self,
        key: str,
        work: Callable[[OnceRun], T],
        *,
        tries: int = 3,
        wait: Duration | None = None,
    ) -> OnceResult[T]:
        """Has the work done once for a key: one run at a time, on whichever instance, until a
        success is recorded. It runs on a thread of its own."""

        async def there(run: OnceRun) -> T:
            return await asyncio.get_running_loop().run_in_executor(None, work, run)

        return self._call(self._inner.once(key, there, tries=tries, wait=wait))

    def current_leader(self) -> Leader | None:
        """Asks the store who leads: one read. ``None`` if nobody does."""
        return self._call(self._inner.current_leader())

    def resign(self) -> None:
        """Gives up the present reign, if this instance leads."""
        self._call(self._inner.resign())

    def done(self, term: int) -> None:
        """Says that all work of this term has ended that was started on an unregistered answer."""
        self._inner._check()
        self._inner._done(term)

    def events(self) -> Iterator[Event]:
        """What happens from now on, in order, until the election is stopped."""

        async def subscribe() -> Any:
            return self._inner.events()

        feed = self._call(subscribe())

        async def following() -> Event | None:
            try:
                event: Event = await feed.__anext__()
            except StopAsyncIteration:
                return None
            return event

        def read() -> Iterator[Event]:
            while True:
                try:
                    event = self._call(following())
                except StoppedError:
                    return
                if event is None:
                    return
                yield event

        return read()

    def notify(self, channel: str, payload: Any) -> None:
        """Sends a value to the current leader: at most once, and lost if nobody leads."""
        self._call(self._inner.notify(channel, payload))

    def post(self, channel: str, payload: Any, *, key: str) -> Posted:
        """Keeps a value until a leader has handled it."""
        return self._call(self._inner.post(channel, payload, key=key))

    def on(self, channel: str, *, posts: bool | None = None) -> Callable[[Handler], Handler]:
        """Handles the messages of a channel while this instance leads."""
        return self._inner.on(channel, posts=posts)

    # Inside

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._inner._check()
            with self._lock:
                if self._thread is None:
                    self._thread = _Thread(self.name)
                    self._inner._callers = concurrent.futures.ThreadPoolExecutor(
                        1, thread_name_prefix=f"tenure-{self.name}-calls"
                    )
                thread = self._thread
        except BaseException:
            work.close()
            raise
        return thread.call(work)

    def _end(self, thread: _Thread) -> None:
        with self._lock:
            if self._thread is not thread:
                return
            self._thread = None
            callers, self._inner._callers = self._inner._callers, None
        thread.end()
        if callers is not None:
            callers.shutdown(wait=False)
        leading, self._lead_thread = self._lead_thread, None
        if leading is not None and leading is not threading.current_thread():
            leading.join(self.timing.drain)

    def _begin_leading(self) -> None:
        self._lead_thread = threading.Thread(
            target=self._lead, name=f"tenure-{self.name}-lead", daemon=True
        )
        self._lead_thread.start()

    def _lead(self) -> None:
        try:
            for reign in self.reigns():
                with reign:
                    self._together(reign)
        except BaseException as error:
            logger.error("the work of %r failed; giving up", self.name, exc_info=error)
            self._failure = error
            try:
                self.stop()
            except Error as trouble:
                logger.warning("stopping the election %r: %s", self.name, trouble)

    def _together(self, reign: Reign) -> None:
        if len(self._leads) == 1:
            self._leads[0](reign)
            return
        with concurrent.futures.ThreadPoolExecutor(len(self._leads)) as pool:
            for working in [pool.submit(work, reign) for work in self._leads]:
                working.result()

    def __repr__(self) -> str:
        return f"<tenure.blocking.Election {self.name!r}>"


async def _tell(reign: AsyncReign, lost: Lost) -> None:
    lost._set(await reign.lost.wait())


