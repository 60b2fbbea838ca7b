"""Fleets of real processes that are killed, frozen and stopped, judged from outside."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from databases import make_database, new_url, old_url

__all__ = ["make_database", "new_url", "old_url"]

HERE = Path(__file__).parent
FAULTS = 210 if os.environ.get("TENURE_TEST_LONG") else 30
TIMEOUT = 2


class Worker:
    """A process, and what it believed."""

    serial = 0

    def __init__(self, which: str, kind: str, url: str, service: str) -> None:
        Worker.serial += 1
        self.name, self.which = f"{which}-{Worker.serial}", which
        self.beliefs: list[tuple[int, float, float]] = []
        self.started = threading.Event()
        args = [which, kind, url, service, self.name, str(TIMEOUT)]
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "compat_worker.py"), *args],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.startswith("started"):
                    self.started.set()
                elif line.count(" ") == 2 and line.endswith("\n"):
                    reign, before, after = line.split()
                    self.beliefs.append((int(reign), float(before), float(after)))
        self.started.set()

    def believed_after(self, instant: float) -> bool:
        return bool(self.beliefs) and self.beliefs[-1][1] > instant

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(how)
        self.process.wait(30)
        self.reader.join(30)


class Believer(Protocol):
    """What the judge has to know."""

    name: str
    beliefs: list[tuple[int, float, float]]


def reigns(worker: Believer) -> list[tuple[float, float]]:
    """Between its first and its last belief of one reign, an instance certainly believed."""
    spans: dict[int, list[float]] = defaultdict(list)
    for reign, before, after in worker.beliefs:
        span = spans[reign]
        span[:] = [span[0] if span else after, max(before, after if not span else before)]
    return [(first, last) for first, last in spans.values() if first < last]


def overlaps(workers: Sequence[Believer]) -> list[str]:
    """Instants at which two instances certainly believed that they lead."""
    spans = sorted(
        (first, last, worker.name) for worker in workers for first, last in reigns(worker)
    )
    found = []
    latest, whose = 0.0, ""
    for first, last, name in spans:
        if first < latest and name != whose:
            found.append(f"{name} from {first:.3f} and {whose} until {latest:.3f}")
        if last > latest:
            latest, whose = last, name
    return found


def boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def leader(workers: list[Worker], since: float, limit: float = 20.0) -> Worker:
    """Who leads after an instant. Somebody must, in time."""
    by = boot() + limit
    while boot() < by:
        for worker in workers:
            if worker.believed_after(since):
                return worker
        time.sleep(0.01)
    raise AssertionError("nobody leads")


def test_the_judge_sees_an_overlap() -> None:
    class Told:
        def __init__(self, name: str, beliefs: list[tuple[int, float, float]]) -> None:
            self.name, self.beliefs = name, beliefs

    a = Told("a", [(1, 1.0, 1.1), (1, 2.0, 2.1), (2, 5.0, 5.1), (2, 6.0, 6.1)])
    b = Told("b", [(1, 2.2, 2.3), (1, 4.0, 4.1)])
    c = Told("c", [(1, 3.0, 3.1), (1, 5.5, 5.6)])
    assert overlaps([a, b]) == []
    assert len(overlaps([a, b, c])) == 2


FLEETS = {
    "drop-ins": (True, [("new", "asyncpg pool"), ("new", "psycopg pool"),
                        ("new", "sqlalchemy asyncpg")]),
    "beside old ones": (True, [("new", "asyncpg pool"), ("new", "psycopg pool"),
                               ("old", "own object"), ("old", "own object")]),
    "not upgraded": (False, [("new", "asyncpg pool"), ("new", "psycopg connection"),
                             ("old", "own object")]),
}  # fmt: skip


def test_every_fleet_has_one_leader_at_every_instant(new_url: str, old_url: str) -> None:
    """At the same time: they mostly wait."""
    with ThreadPoolExecutor() as threads:
        urls = {True: new_url, False: old_url}
        runs = [threads.submit(run, name, urls[FLEETS[name][0]]) for name in FLEETS]
        for one in runs:
            one.result()


def run(fleet: str, url: str) -> None:
    _, members = FLEETS[fleet]
    service = f"{fleet}-{uuid.uuid4().hex[:8]}"
    rng = random.Random(fleet)
    everybody = [Worker(which, kind, url, service) for which, kind in members]
    fleet_of = list(everybody)
    try:
        for worker in everybody:
            assert worker.started.wait(30)
        for _ in range(max(FAULTS // len(FLEETS), 1)):
            hit = leader(fleet_of, boot())
            how = rng.choice(["kill", "stop", "freeze", "freeze"])
            if hit.which == "old" and how == "freeze":
                # A frozen old leader believes again when it wakes. That fault is known.
                how = "kill"
            at = boot()
            if how == "freeze":
                hit.process.send_signal(signal.SIGSTOP)
                others = [one for one in fleet_of if one is not hit]
                leader(others, at + TIMEOUT / 2)
                hit.process.send_signal(signal.SIGCONT)
                continue
            hit.end(signal.SIGKILL if how == "kill" else signal.SIGTERM)
            fleet_of.remove(hit)
            kind = next(kind for which, kind in members if which == hit.which)
            fresh = Worker(hit.which, kind, url, service)
            everybody.append(fresh)
            fleet_of.append(fresh)
            assert fresh.started.wait(30)
        leader(fleet_of, boot())
    finally:
        for worker in fleet_of:
            worker.end(signal.SIGTERM)
    assert overlaps(everybody) == []
    begun = {(worker.name, reign) for worker in everybody for reign, _, _ in worker.beliefs}
    assert len(begun) > FAULTS // len(FLEETS), "each fault ends a reign, and another begins"
