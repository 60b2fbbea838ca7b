"""Jobs that fire on the leader of an election, each tick once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tenure import _native
from tenure._arguments import seconds, text
from tenure._bridge import wait
from tenure._election import Election

if TYPE_CHECKING:
    from tenure._arguments import Duration

Delivery = Literal["at-most-once", "at-least-once", "transactional"]
Overlap = Literal["skip", "queue", "allow"]
Work = TypeVar("Work", bound=Callable[["Run"], Any])

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Run:
    """One run of a job, for one tick. ``term`` is the fencing token for whatever it writes."""

    job: str
    scheduled_unix_ms: int
    attempt: int
    manual: bool
    term: int
    _call: _native.Call = field(repr=False, compare=False)

    @property
    def scheduled_at(self) -> datetime:
        """The instant that it was scheduled for, the same for every attempt."""
        return _EPOCH + timedelta(milliseconds=self.scheduled_unix_ms)

    @property
    def is_current(self) -> bool:
        """May I still finish what I started? True until trust ends."""
        return self._call.is_current()


@dataclass(frozen=True)
class TickRecord:
    """What the ledger says of one tick."""

    job: str
    scheduled_unix_ms: int
    attempt: int
    term: int | None
    state: str


class Cron:
    """Jobs that fire on the leader of an election. A tick is claimed in the store's ledger before
    it begins, so it begins at most once, cluster-wide, unless ``delivery`` asks for more.

    >>> import tempfile, tenure
    >>> election = tenure.Election("nightly", "sqlite:" + tempfile.mkdtemp() + "/tenure.db")
    >>> cron = tenure.Cron(election)
    >>> @cron.job("30 3 * * *", tz="Europe/Berlin", missed="run-once")
    ... async def invoices(run):
    ...     print("the invoices of", run.scheduled_at)
    """

    def __init__(self, election: Election) -> None:
        if not isinstance(election, Election):
            raise TypeError(f"election is {election!r}; give a tenure.Election")
        self._election = election
        self._native = _native.Cron(election)

    def job(
        self,
        schedule: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        missed: str = "skip",
        delivery: Delivery = "at-most-once",
        overlap: Overlap | None = None,
        timeout: Duration | None = None,
        jitter: Duration | None = None,
        grace: Duration | None = None,
        keep: int | None = None,
    ) -> Callable[[Work], Work]:
        """Adds a job: five or six fields, or a name like ``@daily``, in a time zone. The job has
        the name of the function, unless ``name`` is given. Its function gets a :class:`Run`; it is
        cancelled when leadership ends. To be given before ``run``."""

        def add(work: Work) -> Work:
            if not callable(work):
                raise TypeError(f"the job is {work!r}; give a function")
            called = text("name", name if name is not None else getattr(work, "__name__", None))
            self._native.add(
                called,
                text("schedule", schedule),
                text("tz", tz),
                text("delivery", delivery),
                text("missed", missed),
                overlap,
                seconds("timeout", timeout),
                seconds("jitter", jitter),
                seconds("grace", grace),
                keep,
            )
            self._election._jobs[called] = lambda call: work(Run(**call.argument, _call=call))
            return work

        return add

    async def run(self) -> None:
        """Fires the jobs each time this instance leads, until the election is stopped. Each reign
        has one handle, so this is in place of ``reigns()`` and ``lead``."""
        election = self._election
        await election._begin()
        await wait(self._native.run())

    async def trigger(self, job: str) -> int:
        """Asks the leader, whichever instance that is, to run a job now. Returns the instant that
        the run counts as scheduled for, in milliseconds of Unix time."""
        self._election._check()
        scheduled: int = await wait(self._native.trigger(text("job", job)))
        return scheduled

    async def history(self, job: str | None = None, *, limit: int = 100) -> list[TickRecord]:
        """What happened to the ticks of a job, or of all, the latest scheduled first."""
        self._election._check()
        return [TickRecord(**one) for one in await wait(self._native.history(job, limit))]


def next_ticks(schedule: str, tz: str = "UTC", *, count: int = 5) -> list[datetime]:
    """When a schedule fires next.

    >>> len(next_ticks("*/15 * * * *", count=4))
    4
    """
    now = int(datetime.now(timezone.utc).timestamp() * 1000)
    ticks = _native.next_ticks(text("schedule", schedule), text("tz", tz), now, count)
    return [_EPOCH + timedelta(milliseconds=tick) for tick in ticks]

