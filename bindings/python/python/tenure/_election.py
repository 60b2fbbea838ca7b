"""One candidate's part in one election, for asyncio."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from tenure import _exit, _log, _native
from tenure._arguments import as_json, number, seconds, text
from tenure._bridge import Watch, wait, watch
from tenure._calls import Server, settle
from tenure._candidate import Candidate
from tenure._errors import Error, LoopError, OnceFailed, StoppedError
from tenure._log import logger
from tenure._reign import Reign
from tenure._scope import Scope

# What few programs use is loaded when it is used.
if TYPE_CHECKING:
    from tenure._arguments import Duration
    from tenure._once import OnceResult, OnceRun
    from tenure._values import Event, Leader, Message, Posted, Timing

# Terms stay below 2^53, so that every language can count them.
TERM_MAX = 2**53 - 1
COUNT_MAX = 2**32 - 1

T = TypeVar("T")
Work = TypeVar("Work", bound=Callable[[Reign], Awaitable[Any]])
Handler = TypeVar("Handler", bound="Callable[[Message], Any]")


class Election(_native.Election):
    """One candidate's part in one election.

    ``store`` is the URL of a store (``sqlite:PATH``, ``postgres://``, ``postgres+advisory://``,
    ``redis://`` and so on), or a :class:`Candidate` that many elections share. Without one it is
    ``$TENURE_STORE``, else the SQLite file of this user. Durations are seconds or timedeltas.

    ``async with`` starts it, and stops it at the end. Inside, renewals depend on this event loop: a
    lease is not kept while the loop is blocked.
    """

    def __init__(
        self,
        name: str,
        store: str | Candidate | None = None,
        *,
        label: str | None = None,
        profile: str | None = None,
        ttl: Duration | None = None,
        renew_every: Duration | None = None,
        margin: Duration | None = None,
        drain: Duration | None = None,
        metadata: Mapping[str, Any] | None = None,
        term_floor: int | None = None,
        fail_closed: bool = False,
        at_once: bool = False,
        post_tries: int | None = None,
        post_timeout: Duration | None = None,
        on_elected: Callable[[int], Any] | None = None,
        on_lost: Callable[[int], Any] | None = None,
        on_change: Callable[[int | None], Any] | None = None,
        on_error: Callable[[Exception], Any] | None = None,
    ) -> None:
        if isinstance(store, Candidate):
            if label is not None:
                raise ValueError("label is given, and the candidate in store has one already")
            candidate = store
        else:
            candidate = Candidate(store, label=label)
        callbacks: dict[str, Callable[[Any], Any]] = {}
        for what, function in (
            ("on_elected", on_elected),
            ("on_lost", on_lost),
            ("on_change", on_change),
            ("on_error", on_error),
        ):
            if function is None:
                continue
            if not callable(function):
                raise TypeError(f"{what} is {function!r}; give a function")
            callbacks[what] = function
        if metadata is not None and not isinstance(metadata, Mapping):
            raise TypeError(f"metadata is {metadata!r}; give a mapping")
        self._plan(
            text("name", name),
            candidate._native,
            profile if profile is None else text("profile", profile),
            [
                seconds("ttl", ttl),
                seconds("renew_every", renew_every),
                seconds("margin", margin),
                seconds("drain", drain),
            ],
            None if metadata is None else as_json("metadata", dict(metadata)),
            number("term_floor", term_floor, 1, TERM_MAX),
            bool(fail_closed),
            bool(at_once),
            list(callbacks),
            number("post_tries", post_tries, 1, COUNT_MAX),
            seconds("post_timeout", post_timeout),
        )
        self._callbacks = callbacks
        self._handlers: dict[tuple[str, str], Callable[[Message], Any]] = {}
        self._jobs: dict[str, Callable[[Any], Any]] = {}
        self._onces: dict[int, tuple[Callable[[OnceRun], Any], _Try]] = {}
        self._tickets = itertools.count(1)
        self._leads: list[Callable[[Reign], Awaitable[Any]]] = []
        self._lead_task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scope: Scope | None = None
        self._vouching: Watch | None = None
        self._server: Server | None = None
        self._started = False
        self._stops = 0
        self._stopped: asyncio.Event | None = None
        self._feeds: weakref.WeakSet[Events] = weakref.WeakSet()
        self._handles: weakref.WeakSet[Reign] = weakref.WeakSet()

    @property
    def timing(self) -> Timing:
        """The durations of its lease."""
        from tenure._values import Timing

        return Timing(*self._timing)

    # Taking part

    async def start(self) -> None:
        """Takes part from now on. Returns after the first attempt, so that a lone instance leads
        when this returns. A store that does not answer is no error: it is asked again."""
        await self._begin()
        if self._started:
            return
        self._started = True
        try:
            await wait(self._start())
        except BaseException:
            self._started = False
            self._end()
            raise
        if self._leads:
            self._begin_leading()

    async def stop(self) -> None:
        """Takes no further part: tells the work to stop, waits for it, gives the lease back. Safe
        on a follower and when stopped already."""
        self._check()
        if self._loop is None:
            return
        self._bind()
        self._started = False
        self._stops += 1
        try:
            await wait(self._stop())
        finally:
            task, self._lead_task = self._lead_task, None
            if task is not None and task is not asyncio.current_task():
                await _finished(task)
            self._end()

    async def run(self) -> None:
        """Starts it, and waits until it is stopped. For programs that are all ``@election.lead``."""
        async with self:
            if self._stopped is not None:
                await self._stopped.wait()

    async def __aenter__(self) -> Election:
        self._bind()
        scope = Scope()
        scope.enter()
        self._failure = None
        await self.start()
        self._scope = scope
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        scope, self._scope = self._scope, None
        ours = False
        try:
            ours = scope is not None and await scope.leave(error)
        finally:
            try:
                await self.stop()
            except Error as trouble:
                logger.warning("stopping the election %r: %s", self.name, trouble)
        failure, self._failure = self._failure, None
        if failure is not None and (error is None or ours):
            raise failure

    # Leading

    def reigns(self) -> AsyncIterator[Reign]:
        """Each time this instance leads, until the election is stopped. Each reign has one handle:
        use this or ``lead``, and one of them."""
        return Reigns(self)

    def lead(self, work: Work) -> Work:
        """Runs an async function each time this instance leads, with the reign; it is cancelled
        when leadership ends. It begins with the election. If it raises, leadership is given up, the
        election is stopped, and the exception is raised where the ``async with`` ends."""
        if not callable(work):
            raise TypeError(f"lead is given {work!r}; give an async function")
        self._leads.append(work)
        if self._started and self._lead_task is None:
            self._begin_leading()
        return work

    async def run_if_leader(self, work: Callable[..., Any], *args: Any) -> Any:
        """Runs a function if this instance leads, and returns what it returned; else ``None``. If
        trust ends before it does it is cancelled, and ``None`` is returned."""
        self._check()
        if self._loop is None:
            return None
        self._bind()
        entered = self._enter()
        if entered is None:
            return None
        scope = Scope()
        scope.enter()
        in_time: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def over(value: bool, error: BaseException | None) -> None:
            if not in_time.done():
                in_time.set_result(bool(value) and error is None)
            scope.cancel("trust has ended")

        watching = watch(entered.op, over)
        value, raised = None, None
        try:
            value = await settle(work(*args))
        except BaseException as error:
            raised = error
        # From here on it is only waited for, and cancels nobody.
        ours = await scope.leave(raised)
        entered.end()
        try:
            if raised is not None and not ours:
                raise raised
            return value if await in_time and not ours else None
        finally:
            watching.close()

    @overload
    async def once(
        self,
        key: str,
        work: Callable[[OnceRun], Awaitable[T]],
        *,
        tries: int = 3,
        wait: Duration | None = None,
    ) -> OnceResult[T]: ...

    @overload
    async def once(
        self,
        key: str,
        work: Callable[[OnceRun], T],
        *,
        tries: int = 3,
        wait: Duration | None = None,
    ) -> OnceResult[T]: ...

    async def once(
        self,
        key: str,
        work: Callable[[OnceRun], Any],
        *,
        tries: int = 3,
        wait: Duration | None = None,
    ) -> OnceResult[Any]:
        """Has the work done once for a key: one run at a time, on whichever instance, until a
        success is recorded. ``tries`` counts the runs of all instances; ``wait`` is how long to
        wait while somebody else leads, ``None`` for as long as it takes.

        Raises what the work raised when all tries are used up, or :class:`OnceFailed` if that was
        on other instances."""
        from tenure._once import OnceResult

        text("key", key)
        patience = seconds("wait", wait)
        number("tries", tries, 1, COUNT_MAX)
        await self._begin()
        ticket, attempt = next(self._tickets), _Try()
        self._onces[ticket] = (work, attempt)
        try:
            outcome, attempts, said = await _wait(self._once(key, tries, patience, ticket))
        finally:
            del self._onces[ticket]
            if not self._started and not self._onces:
                self._end()
        if outcome == "failed":
            if attempt.error is not None:
                raise attempt.error
            raise OnceFailed(f"the work for {key!r} failed {attempts} times: {said}", attempts)
        return OnceResult(outcome, attempt.value if outcome == "ran" else None)

    # Asking and telling

    async def current_leader(self) -> Leader | None:
        """Asks the store who leads: one read. ``None`` if nobody does."""
        from tenure._values import Leader

        self._check()
        self._bind()
        return Leader._of(await wait(self._current_leader()))

    async def resign(self) -> None:
        """Gives up the present reign, if this instance leads. Then it steps back for one
        ``renew_every`` and campaigns again."""
        self._check()
        self._bind()
        await wait(self._resign())

    async def done(self, term: int) -> None:
        """Says that all work of this term has ended that was started because ``is_leader``, an
        event or ``on_elected`` said that this instance leads. The lease is then given back without
        waiting for the drain."""
        self._check()
        self._done(term)

    def events(self) -> AsyncIterator[Event]:
        """What happens from now on, in order, until the election is stopped. A reign that it tells
        of is relied upon, as by ``is_leader``."""
        self._check()
        self._bind()
        if self._server is None:
            raise StoppedError("the election was not started, or was stopped; start it first")
        feed = Events(self._events())
        self._feeds.add(feed)
        return feed

    # Messages

    async def notify(self, channel: str, payload: Any) -> None:
        """Sends a value to the current leader: at most once, and lost if nobody leads."""
        self._check()
        self._bind()
        await wait(self._notify(text("channel", channel), as_json("payload", payload)))

    async def post(self, channel: str, payload: Any, *, key: str) -> Posted:
        """Keeps a value until a leader has handled it. A known ``key`` adds nothing, so it is safe
        to post again when nobody knows whether it worked."""
        from tenure._values import Posted

        self._check()
        self._bind()
        arguments = (text("channel", channel), as_json("payload", payload), text("key", key))
        return Posted(*await wait(self._post(*arguments)))

    def on(self, channel: str, *, posts: bool | None = None) -> Callable[[Handler], Handler]:
        """Handles the messages of a channel while this instance leads: notices and posts, or only
        one kind with ``posts=False`` or ``posts=True``. To be given before the election starts."""
        text("channel", channel)

        def add(handler: Handler) -> Handler:
            if not callable(handler):
                raise TypeError(f"on({channel!r}) is given {handler!r}; give a function")
            for kind in ("notice", "post"):
                if posts is None or posts == (kind == "post"):
                    self._handle(channel, kind == "post")
                    self._handlers[kind, channel] = handler
            return handler

        return add

    # Inside

    def _bind(self) -> None:
        """Belongs to the running loop from now on."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            if self._loop is not None:
                # What the old loop polled went with it.
                self._end()
            self._loop = loop
        elif self._loop is not loop:
            raise LoopError(
                f"the election {self.name!r} runs on another event loop; stop it there first, or "
                "use tenure.blocking from threads"
            )

    async def _begin(self) -> None:
        """Opens the store and vouches for this loop."""
        self._check()
        self._bind()
        if self._server is not None:
            return
        _log.start()
        await wait(self._open())
        if self._server is not None:
            return
        _exit.watch(self)
        self._stopped = asyncio.Event()
        # Before anybody can lead: a loop that is blocked at once is noticed.
        self._vouching = watch(self._vouch(), lambda value, error: None)
        self._server = Server(self, self._find)

    def _let_go(self) -> None:
        """The interpreter ends. On a loop that does not run, no work goes on any more."""
        if self._loop is None or not self._loop.is_running():
            for reign in list(self._handles):
                reign._close()

    def _end(self) -> None:
        if self._vouching is not None:
            self._vouching.close()
        if self._server is not None:
            self._server.close()
        for feed in list(self._feeds):
            feed._close()
        if self._stopped is not None:
            self._stopped.set()
        self._vouching = self._server = self._stopped = self._loop = None
        _exit.forget(self)

    def _find(self, call: _native.Call) -> tuple[Callable[[Any], Any], Any] | None:
        kind, argument = call.kind, call.argument
        if kind in self._callbacks:
            return self._callbacks[kind], argument
        if kind == "job":
            job = self._jobs.get(argument["job"])
            return None if job is None else (job, call)
        if kind == "once":
            work = self._onces.get(argument.pop("ticket"))
            if work is None:
                return None
            from tenure._once import OnceRun

            return work[1].of(work[0]), OnceRun(**argument, _call=call)
        handler = self._handlers.get((kind, argument.get("channel", "")))
        if handler is None:
            return None
        from tenure._values import Message

        return handler, Message._of(call)

    def _begin_leading(self) -> None:
        self._lead_task = asyncio.get_running_loop().create_task(
            self._lead(), name=f"tenure-lead-{self.name}"
        )

    async def _lead(self) -> None:
        try:
            async for reign in self.reigns():
                async with reign:
                    await _together([work(reign) for work in self._leads])
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            logger.error("the work of %r failed; giving up", self.name, exc_info=error)
            self._failure = error
            try:
                await self.stop()
            except Error as trouble:
                logger.warning("stopping the election %r: %s", self.name, trouble)
            if self._scope is not None:
                self._scope.cancel("the work failed")

    def __repr__(self) -> str:
        return f"<tenure.Election {self.name!r} {'started' if self._started else 'stopped'}>"


class _Try:
    """What the work of one ``once`` said last."""

    value: Any = None
    error: Exception | None = None

    def of(self, work: Callable[[OnceRun], Any]) -> Callable[[OnceRun], Awaitable[None]]:
        async def run(run: OnceRun) -> None:
            try:
                self.value = await settle(work(run))
            except Exception as error:
                self.error = error
                raise

        return run


class Reigns(AsyncIterator[Reign]):
    """Each time this instance leads."""

    def __init__(self, election: Election) -> None:
        self._election = election
        self._stops = election._stops
        self._last: Reign | None = None

    async def __anext__(self) -> Reign:
        election, last = self._election, self._last
        if last is not None:
            self._last = None
            last._close()
        if election._stops != self._stops:
            raise StopAsyncIteration
        await election._begin()
        try:
            native = cast(_native.Reign, await wait(election._campaign()))
        except StoppedError:
            raise StopAsyncIteration from None
        self._last = Reign(native)
        election._handles.add(self._last)
        return self._last


class Events(AsyncIterator["Event"]):
    """What happens in an election."""

    def __init__(self, native: _native.Events) -> None:
        from tenure._values import Event

        self._made = Event._of
        self._native = native
        self._closed = False
        self._waiting: asyncio.Future[Event | None] | None = None

    async def __anext__(self) -> Event:
        future: asyncio.Future[Event | None] = asyncio.get_running_loop().create_future()

        def ended(value: Any, error: BaseException | None) -> None:
            if not future.done():
                future.set_result(None if value is None else self._made(value))

        watching = watch(self._native.next(), ended)
        self._waiting = future
        if self._closed and not future.done():
            future.set_result(None)
        try:
            event = await future
        finally:
            self._waiting = None
            watching.close()
        if event is None:
            raise StopAsyncIteration
        return event

    def _close(self) -> None:
        """Ends when all is read that has happened so far."""
        self._closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


_wait = wait


async def _together(works: list[Awaitable[Any]]) -> None:
    """Waits for all of them. If one fails, the others are cancelled and waited for."""
    if len(works) == 1:
        await works[0]
        return
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def _finished(task: asyncio.Task[None]) -> None:
    """Waits for a task that has nothing left to wait for, and gives up with its waiter."""
    try:
        await asyncio.wait([task])
    finally:
        task.cancel()

