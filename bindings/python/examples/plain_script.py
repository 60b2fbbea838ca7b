"""A script that many hosts run, and one of them works: `python plain_script.py sqlite:shared.db`."""

from __future__ import annotations

import asyncio
import signal
import sys

import tenure


async def main() -> None:
    election = tenure.Election("invoices", store=sys.argv[1], ttl=6)
    # Ends as it should when it is told to: the lease is given back, and another one takes over.
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: stopping.append(loop.create_task(end())))
    stopping: list[asyncio.Task[None]] = []

    async def end() -> None:
        await election.stop()

    @election.lead
    async def send(reign: tenure.Reign) -> None:
        while True:
            print("sending invoices as term", reign.term, flush=True)
            await asyncio.sleep(1)

    await election.run()
    print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
