"""What the package costs. Run it on an optimised build: `cargo xtask wheel` makes one.

`python bench/bench.py` prints a section for bench/RESULTS.md. With TENURE_TEST_POSTGRES and
TENURE_TEST_REDIS it measures on these servers, too.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tenure

ROUNDS = int(os.environ.get("TENURE_BENCH_ROUNDS", "10000"))
POSTGRES = os.environ.get("TENURE_TEST_POSTGRES", "")
REDIS = os.environ.get("TENURE_TEST_REDIS", "")

# What a hand-over takes between programs in Rust, p50 in ms: bench/RESULTS.md, clean_hand_over_*.
RUST_MS = {"SQLite": 0.99, "Postgres": 1.85, "Redis": 0.41}

rows: list[tuple[str, str, str, bool | None]] = []


def row(measure: str, value: str, bar: str = "", holds: bool | None = None) -> None:
    rows.append((measure, value, bar, holds))
    print(measure, value, bar, holds, file=sys.stderr)


def sqlite() -> str:
    return f"sqlite:{tempfile.mkdtemp()}/tenure.db"


def resident(script: str) -> tuple[float, float]:
    """Megabytes that a process has when the script is done: all that is in memory, and of that what
    is its own, which no other process shares and the system can't take back."""
    script += "\nprint(open('/proc/self/status').read())"
    found: list[tuple[float, float]] = []
    for _ in range(5):
        command = [sys.executable, "-c", script]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        told = dict(line.split(":", 1) for line in said.splitlines() if "kB" in line)
        own, whole = (int(told[key].split()[0]) * 1024 / 1e6 for key in ("RssAnon", "VmRSS"))
        found.append((whole, own))
    return sorted(found)[2]


def nanoseconds(call: Callable[[], object]) -> float:
    return min(timeit.repeat(call, number=200_000, repeat=7)) / 200_000 * 1e9


def measure_import() -> None:
    plain = "import time; t = time.perf_counter(); import tenure; print(time.perf_counter() - t)"
    lazy = [
        float(subprocess.run([sys.executable, "-c", plain], capture_output=True, text=True).stdout)
        for _ in range(10)
    ]
    taken = statistics.median(lazy) * 1000
    row("import tenure", f"{taken:.1f} ms", "≤ 50 ms", taken <= 50)
    script = "import time; t = time.perf_counter(); import tenure; tenure.Election; "
    script += "print(time.perf_counter() - t)"
    took = [
        float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout)
        for _ in range(10)
    ]
    alone = "import time, asyncio, logging, dataclasses, json; t = time.perf_counter(); "
    alone += "import tenure; tenure.Election; print(time.perf_counter() - t)"
    after = [
        float(subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True).stdout)
        for _ in range(10)
    ]
    row("the native part and asyncio, too", f"{statistics.median(took) * 1000:.0f} ms")
    row("the native part, asyncio being there", f"{statistics.median(after) * 1000:.0f} ms")


def measure_memory() -> None:
    bare, bare_own = resident("pass")
    loop, loop_own = resident("import asyncio")
    row("memory over a bare interpreter, asyncio alone", f"{loop - bare:.1f} MB")
    row("of that its own", f"{loop_own - bare_own:.1f} MB")
    for store, url in {"SQLite": sqlite(), "Postgres": POSTGRES, "Redis": REDIS}.items():
        if not url:
            continue
        script = f"""
import asyncio, tenure
async def main():
    async with tenure.Election("e", {url!r}) as election:
        await election.done(election.term)
asyncio.run(main())
"""
        used, own = resident(script)
        more = used - bare
        what = f"memory over a bare interpreter, leading on {store}"
        row(what, f"{more:.1f} MB", "≤ 15 MB", more <= 15)
        row("of that its own", f"{own - bare_own:.1f} MB")


async def measure_is_leader() -> None:
    async with tenure.Election("e", sqlite()) as election:
        nothing = nanoseconds(election._nothing)
        timer = timeit.Timer("e.is_leader", globals={"e": election})
        leading = min(timer.repeat(number=200_000, repeat=7)) / 200_000 * 1e9
        assert election.is_leader
        await election.done(election.term or 0)
    following = min(timer.repeat(number=200_000, repeat=7)) / 200_000 * 1e9
    more = leading - nothing
    row("is_leader, leading", f"{leading:.0f} ns")
    row("is_leader, following", f"{following:.0f} ns")
    row("a method that does nothing", f"{nothing:.0f} ns")
    row("the difference, leading", f"{more:.0f} ns", "≤ 50 ns", more <= 50)


async def measure_hand_over(store: str, url: str) -> None:
    """From the end of the work here to the beginning of the work there."""
    took: list[float] = []
    name = f"hand-over-{os.getpid()}"
    elections = [tenure.Election(name, url, ttl=15, renew_every=0.2) for _ in range(2)]
    left = 0.0
    ended = asyncio.Event()

    async def work(election: tenure.Election) -> None:
        nonlocal left
        async for reign in election.reigns():
            async with reign:
                if left:
                    took.append(time.perf_counter() - left)
                if len(took) >= 50:
                    ended.set()
                await asyncio.sleep(0.3)
                left = time.perf_counter()

    for election in elections:
        await election.start()
    tasks = [asyncio.ensure_future(work(election)) for election in elections]
    await ended.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for election in elections:
        await election.stop()
    middle = statistics.median(took) * 1000
    bar = RUST_MS[store] + 3.0
    row(f"hand-over on {store}, p50", f"{middle:.2f} ms", f"≤ {bar:.2f} ms", middle <= bar)


async def measure_many() -> None:
    """1,000 elections in one process, as the server counts."""
    # It comes without types.
    asyncpg: Any = importlib.import_module("asyncpg")
    watch = await asyncpg.connect(POSTGRES)
    others = await watch.fetchval("SELECT count(*) FROM pg_stat_activity WHERE datname <> ''")
    candidate = tenure.Candidate(POSTGRES)
    prefix = f"many-{os.getpid()}"
    elections = [tenure.Election(f"{prefix}-{n}", candidate) for n in range(1000)]
    await asyncio.gather(*(election.start() for election in elections))
    assert all(election.is_leader for election in elections)
    count = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    await asyncio.sleep(5)
    before, began = await watch.fetchval(count), time.monotonic()
    await asyncio.sleep(40)
    commits = await watch.fetchval(count) - before
    rate = commits / (time.monotonic() - began)
    now = await watch.fetchval("SELECT count(*) FROM pg_stat_activity WHERE datname <> ''")
    assert all(election.is_leader for election in elections)
    row("1,000 elections: transactions a second", f"{rate:.2f}", "≤ 3", rate <= 3)
    row("1,000 elections: connections", f"{now - others}", "≤ 3", now - others <= 3)
    for election in elections:
        await election.done(election.term or 0)
    await asyncio.gather(*(election.stop() for election in elections))
    await watch.close()


async def measure_rounds() -> None:
    """Starts and stops, and what is left of them. The driver keeps the timers of a reign until they
    are due, so with a long ttl much is left, and goes by itself."""
    election = tenure.Election("e", tenure.Candidate(sqlite()), ttl=0.9)

    def held() -> tuple[float, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * 4096 / 1e6, len(os.listdir("/proc/self/fd"))

    async def rounds(count: int) -> None:
        for _ in range(count):
            async with election:
                pass

    await rounds(1000)
    before, files = held()
    began = time.monotonic()
    await rounds(ROUNDS)
    took = time.monotonic() - began
    after, files_after = held()
    more = after - before
    row(f"{ROUNDS:,} rounds of start and stop", f"{took:.0f} s")
    row("resident after them", f"{more:+.2f} MB", "no leak", more < 2)
    row("open files after them", f"{files_after - files:+d}", "no leak", files_after <= files)


def main() -> None:
    measure_import()
    measure_memory()
    asyncio.run(measure_is_leader())
    asyncio.run(measure_hand_over("SQLite", sqlite()))
    if REDIS:
        asyncio.run(measure_hand_over("Redis", REDIS))
    if POSTGRES:
        asyncio.run(measure_hand_over("Postgres", POSTGRES))
        asyncio.run(measure_many())
    asyncio.run(measure_rounds())
    version = sys.version.split()[0]
    print(f"## python\n\nThe package for Python {version}, optimised build.\n")
    print("| measure | value | bar | |\n|---|---|---|---|")
    for measure, value, bar, holds in rows:
        mark = "" if holds is None else "ok" if holds else "**missed**"
        print(f"| {measure} | {value} | {bar} | {mark} |")


if __name__ == "__main__":
    main()
