"""The ``LeaderElection`` class of the heartbeat table, with tenure's rules.

Changing the import is the whole change::

    from tenure.compat.leader_election import LeaderElection, LeaderElectionConfig

    election = LeaderElection(pool, LeaderElectionConfig("invoices", "web-1"))
    await election.start()
    if election.is_leader:
        ...
    await election.stop()

What is different from the old class: trust ends by the local clock, whatever hangs; a database error
is neither a yes nor a no; the lease is given back after ``on_lose_leadership`` has returned, never
before; a slow ``on_become_leader`` delays no renewal.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._database import Database, recognise
from ._driver import Driver
from ._engine import Timing

__all__ = ["LeaderElection", "LeaderElectionConfig", "run_if_leader"]

log = logging.getLogger("tenure.compat")

# With "#" and the incarnation it fits into the table's 255.
LABEL_MAX_BYTES = 200


@dataclass
class LeaderElectionConfig:
    """The fields of the old class, in its order and with its defaults."""

    service_name: str
    candidate_id: str
    heartbeat_interval: float = 10.0
    heartbeat_timeout: int = 30
    on_become_leader: Callable[[], Any] | None = None
    on_lose_leadership: Callable[[], Any] | None = None


class LeaderElection:
    """One candidate. ``db`` is used itself: a pool of asyncpg or psycopg, a SQLAlchemy async engine,
    a connection, or any object whose ``execute`` returns rows."""

    def __init__(self, db: Any, config: LeaderElectionConfig) -> None:
        recognise(db)
        _check(config)
        self.db = db
        self.config = config
        self._driver: Driver | None = None
        self._told: set[str] = set()

    @property
    def is_leader(self) -> bool:
        """May something be started now? No I/O; false by itself when trust ends."""
        return self._driver is not None and self._driver.is_leader()

    @property
    def term(self) -> int | None:
        """The term that this instance leads, for ``tenure_fence``; None while it does not lead, and
        on a database without tenure's functions."""
        return None if self._driver is None else self._driver.term

    async def start(self) -> None:
        """Takes part. Returns after the first attempt, and after ``on_become_leader`` if that
        succeeded. A database error is logged, and tried again.

        Raises TypeError if ``db.execute`` returns something that is no row.
        """
        if self._driver is not None and not self._driver.is_inherited:
            return
        config = self.config
        _check(config)
        ttl, interval = config.heartbeat_timeout * 1000, config.heartbeat_interval * 1000
        if interval > ttl / 3 and "interval" not in self._told:
            self._told.add("interval")
            log.warning(
                "heartbeat_interval is %s s, more than a third of heartbeat_timeout (%s s): "
                "beating every %.3f s",
                config.heartbeat_interval, config.heartbeat_timeout, ttl / 3000,
            )  # fmt: skip
        timing = Timing.of(ttl, interval)
        candidate = f"{_shortened(config.candidate_id)}#{secrets.token_hex(16)}"
        database = Database(self.db, config.service_name, candidate, timing.ttl, self._told)
        callbacks = config.on_become_leader, config.on_lose_leadership
        driver = self._driver = Driver(database, timing, *callbacks)
        try:
            await driver.start()
        except BaseException:
            # Also if the wait for the callback was cancelled: nobody leads by accident.
            if self._driver is driver:
                await self.stop()
            raise

    async def stop(self) -> None:
        """Tells ``on_lose_leadership``, waits for it, and gives the lease back. Takes at most
        min(heartbeat_timeout / 6, 5 s); if the callback still runs then, the lease runs out."""
        driver = self._driver
        if driver is None or driver.is_inherited:
            return
        try:
            await driver.stop()
        finally:
            if self._driver is driver:
                self._driver = None

    async def run_if_leader(self, work: Callable[[], Any]) -> Any:
        """The result of ``work``, or None if this instance does not lead. A hand-over waits for it."""
        return None if self._driver is None else await self._driver.run_if_leader(work)


async def run_if_leader(election: LeaderElection, work: Callable[[], Any]) -> Any:
    """The result of ``work``, or None if this instance does not lead."""
    return await election.run_if_leader(work)


def _check(config: LeaderElectionConfig) -> None:
    for name in ("service_name", "candidate_id"):
        value = getattr(config, name)
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a str, not {value!r}")
        if not value or len(value.encode()) > 255:
            raise ValueError(f"{name} must have 1 to 255 bytes, not {len(value.encode())}")
    for name in ("heartbeat_interval", "heartbeat_timeout"):
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{name} must be a number of seconds, not {value!r}")
        if not 0 < value <= 86_400:
            raise ValueError(f"{name} must be above 0 and at most 86400 seconds, not {value!r}")
    for name in ("on_become_leader", "on_lose_leadership"):
        value = getattr(config, name)
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable, not {value!r}")


def _shortened(label: str) -> str:
    """At most 200 bytes of it, cut between characters; the incarnation tells candidates apart."""
    return label.encode()[:LABEL_MAX_BYTES].decode(errors="ignore")
