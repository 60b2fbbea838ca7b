"""What the processes of a fleet share: they ask whether they lead and write down each yes, they
misbehave when they are told to, and they write behind a fence, too late if they can."""

from __future__ import annotations

import ctypes
import importlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

from tenure import StaleTerm, fence

ASK_EVERY_S = 0.002
WRITE_EVERY_S = 0.02


def now_ns() -> int:
    """The clock that all processes of the host share, and that counts suspend."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Record:
    """The file of the fleet. Each line is one write, so that lines do not mix."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def ask(self, term_of: Callable[[], int | None]) -> None:
        """Asks, and writes a yes down: process, term, the instants before and after."""
        before = now_ns()
        term = term_of()
        after = now_ns()
        if term is not None:
            self._write(f"{os.getpid()} {term} {before} {after}")

    def refused(self, term: int) -> None:
        self._write(f"{os.getpid()} refused {term} {now_ns()}")

    def _write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


def misbehave(word: str, ttl_s: float) -> None:
    """What a program does wrong: both last for longer than its lease."""
    if word == "block":
        time.sleep(2 * ttl_s)
    elif word == "hold the GIL":
        # PyDLL keeps the GIL while it calls.
        ctypes.PyDLL(None).usleep(int(2 * ttl_s * 1_000_000))


class Writer(threading.Thread):
    """Writes under the last term that this process led, and never asks whether it still leads: only
    the fence can stop it. It reaches the data even while the process is cut off from its store."""

    def __init__(self, data: str, election: str, record: Record) -> None:
        super().__init__(name="writer", daemon=True)
        self._data, self._election, self._record = data, election, record
        self.term: int | None = None

    def run(self) -> None:
        over, write = None, None
        while True:
            term = self.term
            if term is not None and term != over:
                try:
                    write = write or writer(self._data, self._election)
                    write(term)
                except StaleTerm:
                    over = term
                    self._record.refused(term)
                except Exception:
                    # Ended by the server, perhaps, while this process was frozen.
                    write = None
            time.sleep(WRITE_EVERY_S)


def writer(data: str, election: str) -> Callable[[int], None]:
    """What writes one row, or raises StaleTerm."""
    if data.startswith("postgres"):
        return _postgres(data, election)
    if data.startswith("redis"):
        return _redis(data, election)
    return _sqlite(data, election)


def writes(data: str, election: str) -> list[tuple[int, int]]:
    """All writes that passed, in their order: process and term."""
    rows: list[Any]
    if data.startswith("postgres"):
        import psycopg

        with psycopg.connect(data) as connection:
            sql = "SELECT pid, term FROM fleet_writes WHERE election = %s ORDER BY id"
            rows = connection.execute(sql, (election,)).fetchall()
    elif data.startswith("redis"):
        with redis_client(data) as client:
            found: Any = client.lrange(f"{election}:writes", 0, -1)
            rows = [line.decode().split() for line in found]
    else:
        file = sqlite3.connect(data)
        rows = file.execute("SELECT pid, term FROM fleet_writes ORDER BY id").fetchall()
        file.close()
    return [(int(pid), int(term)) for pid, term in rows]


def redis_client(url: str) -> Any:
    # Its methods come with few types.
    redis: Any = importlib.import_module("redis")
    return redis.Redis.from_url(url)


def prepare(data: str) -> None:
    """Makes the table that they write to."""
    columns = "election text NOT NULL, term bigint NOT NULL, pid integer NOT NULL"
    if data.startswith("postgres"):
        import psycopg

        with psycopg.connect(data) as connection:
            # Fleets begin at the same time, and two CREATE TABLE can meet.
            connection.execute("SELECT pg_advisory_xact_lock(4711)")
            table = f"id bigserial PRIMARY KEY, {columns}"
            connection.execute(f"CREATE TABLE IF NOT EXISTS fleet_writes ({table})")
    elif not data.startswith("redis"):
        file = sqlite3.connect(data)
        table = f"id integer PRIMARY KEY AUTOINCREMENT, {columns}"
        file.execute(f"CREATE TABLE IF NOT EXISTS fleet_writes ({table})")
        file.commit()
        file.close()


def _postgres(data: str, election: str) -> Callable[[int], None]:
    import psycopg

    connection = psycopg.connect(data)

    def write(term: int) -> None:
        with connection.transaction():
            fence.check(connection, election, term)
            sql = "INSERT INTO fleet_writes (election, term, pid) VALUES (%s, %s, %s)"
            connection.execute(sql, (election, term, os.getpid()))

    return write


def _redis(data: str, election: str) -> Callable[[int], None]:
    client = redis_client(data)

    def write(term: int) -> None:
        row = f"{os.getpid()} {term}"
        fence.Redis(client, election, term).run("RPUSH", f"{election}:writes", row)

    return write


def _sqlite(data: str, election: str) -> Callable[[int], None]:
    connection = sqlite3.connect(data, timeout=5)

    def write(term: int) -> None:
        with connection:
            fence.check(connection, election, term)
            sql = "INSERT INTO fleet_writes (election, term, pid) VALUES (?, ?, ?)"
            connection.execute(sql, (election, term, os.getpid()))

    return write
