"""One process of a fleet, on asyncio or on threads.

`python worker.py FACE URL DATA NAME RECORD TTL`
"""

from __future__ import annotations

import asyncio
import sys
import threading

from believing import ASK_EVERY_S, Record, Writer, misbehave

import tenure
from tenure import blocking

FACE, URL, DATA, NAME, RECORD, TTL = sys.argv[1:]
TTL_S = float(TTL)

record = Record(RECORD)
writer = Writer(DATA, NAME, record)


async def on_asyncio() -> None:
    loop = asyncio.get_running_loop()
    loop.add_reader(0, lambda: misbehave(sys.stdin.readline().strip(), TTL_S))
    election = tenure.Election(NAME, store=URL, ttl=TTL_S)

    @election.lead
    async def work(reign: tenure.Reign) -> None:
        writer.term = reign.term
        while True:
            record.ask(lambda: reign.term if reign.is_current else None)
            await asyncio.sleep(ASK_EVERY_S)

    await election.run()


def on_threads() -> None:
    election = blocking.Election(NAME, store=URL, ttl=TTL_S)

    @election.lead
    def work(reign: blocking.Reign) -> None:
        writer.term = reign.term
        while not reign.lost.wait(ASK_EVERY_S):
            record.ask(lambda: reign.term if reign.is_current else None)

    def read() -> None:
        for line in sys.stdin:
            misbehave(line.strip(), TTL_S)

    threading.Thread(target=read, daemon=True).start()
    election.run()


writer.start()
if FACE == "asyncio":
    asyncio.run(on_asyncio())
else:
    on_threads()
