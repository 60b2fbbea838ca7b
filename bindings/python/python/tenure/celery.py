"""A scheduler for Celery beat: start beat on every host, and one of them sends the tasks.

``celery -A app beat -S tenure.celery:Scheduler``, or ``beat_scheduler = "tenure.celery:Scheduler"``.
Settings of the app: ``tenure_store`` (else ``$TENURE_STORE``), ``tenure_election`` (``celery-beat``)
and ``tenure_ttl`` (15 seconds). When a beat is stopped another one takes over at once; when it is
killed, after its lease.

A new leader counts from when it begins to lead, as a beat does that starts without a file: a task
that came due while nobody led is not sent late.
"""

# Celery comes without types.
# pyright: standard

from __future__ import annotations

import threading
from typing import Any

from celery.beat import Scheduler as _Scheduler

from tenure import blocking
from tenure._log import logger

# How long a follower waits before it looks at its schedule again. It is woken when it leads.
_FOLLOWER_WAITS_S = 5.0


class Scheduler(_Scheduler):
    """Sends tasks while this process leads."""

    def __init__(self, app: Any, *args: Any, lazy: bool = False, **arguments: Any) -> None:
        self._elected = threading.Event()
        self._counted: int | None = None
        settings = app.conf
        self._election = blocking.Election(
            settings.get("tenure_election") or "celery-beat",
            settings.get("tenure_store"),
            ttl=settings.get("tenure_ttl") or 15,
            on_change=self._changed,
        )
        super().__init__(app, *args, lazy=lazy, **arguments)
        if not lazy:
            self._election.start()

    def _changed(self, term: int | None) -> None:
        if term is None:
            self._elected.clear()
        else:
            logger.info("this beat leads as term %d", term)
            self._elected.set()

    def tick(self, *args: Any, **arguments: Any) -> Any:
        """Sends what is due, if this process leads. The lease is kept while it does."""
        waits = self._election.run_if_leader(self._tick, args, arguments)
        if waits is not None:
            return waits
        self._counted = None
        return 0 if self._elected.wait(_FOLLOWER_WAITS_S) else 0.1

    def _tick(self, args: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
        term = self._election._inner.peek_term
        if term != self._counted:
            self._counted = term
            now = self.app.now()
            schedule: dict[str, Any] = self.schedule or {}
            for entry in schedule.values():
                entry.last_run_at = now
            self._heap = None
        # A leader looks again soon: it must not sleep through its loss.
        return min(super().tick(*args, **arguments), 1.0)

    def close(self) -> None:
        """Gives the lease back."""
        super().close()
        self._election.stop()
