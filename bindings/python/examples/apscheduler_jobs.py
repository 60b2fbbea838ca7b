"""APScheduler 3 on every instance; its jobs run on the leader: `python apscheduler_jobs.py URL`."""

# APScheduler comes without types.
# pyright: standard

from __future__ import annotations

import asyncio
import sys

from apscheduler.schedulers.asyncio import AsyncIOScheduler

import tenure


async def main() -> None:
    election = tenure.Election("reports", store=sys.argv[1], ttl=3)

    @election.lead
    async def schedule(reign: tenure.Reign) -> None:
        def report() -> None:
            print("report", reign.term, flush=True)

        scheduler = AsyncIOScheduler()
        scheduler.add_job(report, "interval", seconds=0.2)
        scheduler.start()
        try:
            await reign.lost.wait()
        finally:
            # Nothing of it runs when the lease is given back.
            scheduler.shutdown(wait=True)

    await election.run()


if __name__ == "__main__":
    asyncio.run(main())
