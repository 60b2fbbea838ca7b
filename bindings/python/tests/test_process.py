"""Processes that fork, exit, or hang."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import python, run

import tenure


def clean(ended: subprocess.CompletedProcess[str]) -> str:
    """What it said, if it ended well and in silence otherwise."""
    # asyncio tells of every step that takes long, and on a busy machine many do.
    told = [line for line in ended.stderr.splitlines() if not line.startswith("Executing <")]
    assert (ended.returncode, told) == (0, []), ended.stderr
    return ended.stdout


def leader_of(url: str) -> tenure.Leader | None:
    return run(tenure.Election("e", store=url).current_leader())


def test_importing_loads_no_native_code() -> None:
    script = """
import sys, tenure
tenure.Error, tenure.StaleTerm
assert not [name for name in sys.modules if "tenure._native" in name]
assert "asyncio" not in sys.modules
assert "Election" in dir(tenure)
tenure.Election
assert "tenure._native" in sys.modules
"""
    clean(python(script))


FORK = """
import asyncio, os, sys, tenure

async def main():
    async with tenure.Election("e", store=sys.argv[1], ttl=3) as election:
        async for reign in election.reigns():
            async with reign:
                child = os.fork()
                if child == 0:
                    in_the_child(election, reign)
                await asyncio.get_running_loop().run_in_executor(None, os.waitpid, child, 0)
                assert election.is_leader and reign.is_current
                print("the parent leads")
            break

def in_the_child(election, reign):
    assert not election.is_leader and election.term is None
    assert not reign.is_current and not reign.is_leader and reign.remaining == 0
    for call in (lambda: election.events(), lambda: election._check(), lambda: election._stop()):
        try:
            call()
        except tenure.ForkedError as error:
            assert error.kind == "forked"
        else:
            assert call()  # An operation, which says so when it is polled.
    # A loop of the child's own, and an election of its own.
    asyncio._set_running_loop(None)

    async def again():
        try:
            await election.stop()
        except tenure.ForkedError:
            print("forked", flush=True)
        async with tenure.Election("e", store=sys.argv[1]) as mine:
            assert not mine.is_leader
            print("the child follows", flush=True)

    asyncio.run(again())
    del election, reign
    sys.stdout.flush()
    os._exit(0)

asyncio.run(main())
"""


def test_a_forked_child_leads_nothing_and_may_begin_anew(url: str) -> None:
    said = clean(python(FORK, url)).split("\n")
    assert said[:3] == ["forked", "the child follows", "the parent leads"]
    assert leader_of(url) is None


@pytest.mark.parametrize("how", ["registered", "relied upon", "a daemon thread"])
def test_the_end_of_the_interpreter_gives_leases_back(url: str, how: str) -> None:
    script = """
import asyncio, sys, tenure, tenure.blocking, threading

async def main():
    global election, reign
    election = tenure.Election("e", store=sys.argv[1], ttl=3)
    await election.start()
    if sys.argv[2] == "relied upon":
        assert election.is_leader
    else:
        reign = await election.reigns().__anext__()

def wait(election):
    for reign in election.reigns():
        with reign:
            began.set()
            reign.lost.wait()

if sys.argv[2] == "a daemon thread":
    election, began = tenure.blocking.Election("e", store=sys.argv[1], ttl=3), threading.Event()
    election.start()
    threading.Thread(target=wait, args=(election,), daemon=True).start()
    began.wait()
else:
    asyncio.run(main())
print("bye")
"""
    assert clean(python(script, url, how)) == "bye\n"
    assert leader_of(url) is None


def test_a_killed_process_leaves_nothing_behind_but_its_lease(url: str) -> None:
    script = """
import asyncio, os, signal, sys, tenure

async def main():
    async with tenure.Election("e", store=sys.argv[1]) as election:
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    assert python(script, url).returncode == -9


def test_sub_interpreters_are_refused() -> None:
    script = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import sys
made = interpreters.create()
if sys.argv[1:]:
    interpreters.run_string(made, "import json, dataclasses, logging, asyncio")
    interpreters.destroy(made)
    sys.exit()
code = '''
import sys
sys.path[:] = %r
try:
    import tenure
    tenure.Election
except ImportError as error:
    assert "subinterpreters" in str(error), error
else:
    raise SystemExit("not refused")
''' % __import__("sys").path
try:
    failed = interpreters.run_string(made, code)
except Exception as error:
    failed = error
assert failed is None, failed
print("refused")
"""
    # Some versions, 3.12.1 for one, crash without tenure.
    alone = [sys.executable, "-c", script, "without tenure"]
    if subprocess.run(alone, capture_output=True).returncode != 0:
        pytest.skip("this Python has no sub-interpreters that could import anything")
    ended = python(script)
    assert ended.stdout == "refused\n", ended.stderr


def test_a_silent_life_on_uvloop(url: str) -> None:
    pytest.importorskip("uvloop")
    script = """
import asyncio, sys, tenure, uvloop

async def main():
    async with tenure.Election("e", store=sys.argv[1]) as election:
        async for reign in election.reigns():
            async with reign:
                asyncio.ensure_future(election.resign())
                await asyncio.sleep(3600)
            break
    print(reign.lost.reason)

loop = uvloop.new_event_loop()
loop.run_until_complete(main())
loop.close()
"""
    assert clean(python(script, url)) == "resigned\n"


def test_nothing_is_left_after_many_rounds(url: str) -> None:
    async def main() -> None:
        candidate = tenure.Candidate(url)
        election = tenure.Election("e", candidate)

        async def rounds(count: int) -> None:
            for _ in range(count):
                async with election:
                    pass

        def held() -> tuple[int, int]:
            files = len(os.listdir("/proc/self/fd"))
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            return files, pages * os.sysconf("SC_PAGE_SIZE")

        await rounds(50)
        files, size = held()
        await rounds(10_000 if os.environ.get("TENURE_TEST_LONG") else 200)
        now = held()
        # Other tests may have left something that is going or coming.
        assert now[0] < files + 20, (files, now)
        assert now[1] - size < 4_000_000, (size, now)
        assert len(asyncio.all_tasks()) <= 2

    if sys.flags.dev_mode:
        asyncio.run(main())
    else:
        run(main())
