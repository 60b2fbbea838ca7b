"""One candidate in a process of its own. It writes down when it believed that it leads.

`python compat_worker.py CLASS KIND URL SERVICE NAME TIMEOUT`: CLASS is `old` or `new`. Each line is a belief:
reign, instant before the question, instant after it. The judge reads them from outside.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import Any

import old_class
from kinds import opened
from tenure.compat import leader_election as new_class


def boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def main() -> None:
    which, kind, url, service, name, timeout = sys.argv[1:]
    module: Any = new_class if which == "new" else old_class
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with opened(kind, url) as db:
        interval = int(timeout) / 3.2
        config = module.LeaderElectionConfig(service, name, interval, int(timeout))
        election = module.LeaderElection(db, config)
        await election.start()
        print("started", flush=True)
        reign, believed = 0, False
        while not stopped.is_set():
            before = boot()
            believes = election.is_leader
            after = boot()
            if which == "old":
                # It has no deadline of its own: that fault is known. As the store sees it.
                believes = believes and after - election.heard_at < int(timeout) * 0.95
            reign += believes and not believed
            believed = believes
            if believes:
                print(f"{reign} {before:.6f} {after:.6f}", flush=True)
            await asyncio.sleep(0.004)
        await election.stop()


asyncio.run(main())
