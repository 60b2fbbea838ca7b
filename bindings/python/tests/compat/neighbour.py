"""One process of a mixed fleet: the drop-in, or the old class that it replaces.

`python neighbour.py drop-in|old URL DATA NAME RECORD TTL`
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import old_class
from believing import ASK_EVERY_S, Record, Writer, misbehave, now_ns
from kinds import asyncpg, opened

from tenure.compat import leader_election as drop_in

FACE, URL, DATA, NAME, RECORD, TTL = sys.argv[1:]
TIMEOUT = int(float(TTL))

record = Record(RECORD)


async def ask_drop_in(election: Any, writer: Writer) -> None:
    def term() -> int | None:
        return election.term if election.is_leader else None

    record.ask(term)
    writer.term = election.term or writer.term


class OldTerm:
    """The old class knows no term, so the table is asked, beside the network of the fleet."""

    term: int | None = None

    async def ask(self, election: Any, direct: Any) -> None:
        # It has no deadline of its own: that fault is known. It is judged as the store sees it.
        trusted_ns = int((election.heard_at + TIMEOUT * 0.95) * 1e9)
        if not election.is_leader or now_ns() >= trusted_ns:
            self.term = None
            return
        if self.term is None:
            sql = "SELECT term FROM leader_election WHERE service_name = $1 AND leader_id = $2"
            self.term = await direct.fetchval(sql, NAME, election.config.candidate_id)
        record.ask(lambda: self.term if election.is_leader and now_ns() < trusted_ns else None)


async def main() -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    loop.add_reader(0, lambda: misbehave(sys.stdin.readline().strip(), TIMEOUT))
    module: Any = drop_in if FACE == "drop-in" else old_class
    kind = "asyncpg pool" if FACE == "drop-in" else "own object"
    writer, old = Writer(DATA, NAME, record), OldTerm()
    writer.start()
    direct = await asyncpg.connect(DATA)
    async with opened(kind, URL) as db:
        config = module.LeaderElectionConfig(NAME, f"{FACE}-{os.getpid()}", TIMEOUT / 3.2, TIMEOUT)
        election = module.LeaderElection(db, config)
        await election.start()
        while not stopped.is_set():
            if FACE == "drop-in":
                await ask_drop_in(election, writer)
            else:
                await old.ask(election, direct)
            await asyncio.sleep(ASK_EVERY_S)
        await asyncio.wait_for(election.stop(), 10)
        # The pool is not waited for: some of its connections may have been cut off.
        os._exit(0)


asyncio.run(main())
