"""One process of a fleet: asks whether it leads as often as it can, and writes down each yes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable

import tenure
from tenure import blocking

URL, NAME, RECORD, FACE, TTL = sys.argv[1:6]
TTL_S = float(TTL)

record = os.open(RECORD, os.O_WRONLY | os.O_APPEND)


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def ask(term_of: Callable[[], int | None]) -> None:
    before = now_ns()
    term = term_of()
    after = now_ns()
    if term is not None:
        os.write(record, f"{os.getpid()} {term} {before} {after}\n".encode())


def misbehave(word: str) -> None:
    if word == "block":
        time.sleep(2 * TTL_S)
    elif word == "hold the GIL":
        # PyDLL keeps the GIL while it calls.
        ctypes.PyDLL(None).usleep(int(2 * TTL_S * 1_000_000))


async def on_asyncio() -> None:
    loop = asyncio.get_running_loop()

    def read() -> None:
        misbehave(sys.stdin.readline().strip())

    loop.add_reader(sys.stdin.fileno(), read)
    election = tenure.Election(NAME, store=URL, ttl=TTL_S)

    @election.lead
    async def work(reign: tenure.Reign) -> None:
        while True:
            # Both must hold: the reign, and that this instance may start something.
            ask(lambda: reign.term if reign.is_current else None)
            await asyncio.sleep(0.002)

    await election.run()


def on_threads() -> None:
    election = blocking.Election(NAME, store=URL, ttl=TTL_S)

    @election.lead
    def work(reign: blocking.Reign) -> None:
        while not reign.lost.wait(0.002):
            ask(lambda: reign.term if reign.is_current else None)

    def read() -> None:
        for line in sys.stdin:
            misbehave(line.strip())

    threading.Thread(target=read, daemon=True).start()
    election.run()


if FACE == "asyncio":
    asyncio.run(on_asyncio())
else:
    on_threads()
