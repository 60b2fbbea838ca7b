"""Real processes on every store: killed, frozen, blocked, cut off from the network. An outsider
judges what they believed, and whether the fence stopped what came too late."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from fleet import Fleet

LONG = bool(os.environ.get("TENURE_TEST_LONG"))
NEEDED = ["TENURE_TEST_JUDGE", "TENURE_TEST_PROXY", "TENURE_TEST_BELIEVER", "TENURE_TEST_COMMAND"]

NATIVE = ["asyncio", "threads", "asyncio"]
MIXED = ["asyncio", "drop-in", "rust", "old", "threads"]
# Fleets, their stores, their members, and how many faults each of them has: 36, and 460 at length.
FLEETS: dict[str, tuple[str, list[str], int]] = {
    "sqlite": ("sqlite", NATIVE, 60 if LONG else 6),
    "postgres": ("postgres", NATIVE, 60 if LONG else 6),
    "redis": ("redis", NATIVE, 60 if LONG else 7),
    "advisory": ("postgres+advisory", NATIVE, 60 if LONG else 5),
    "mixed": ("postgres", MIXED, 55 if LONG else 12),
}
if LONG:
    # At the same time, so that it does not take an hour.
    FLEETS.update({f"mixed {number}": FLEETS["mixed"] for number in (2, 3, 4)})
AT_ONCE = 5

# What the drop-ins and the old class take are whole seconds.
TTL_S = {"mixed": 2.0}


def url_of(store: str, place: Path) -> str:
    if store == "sqlite":
        return f"sqlite:{place}/tenure.db"
    server = store.split("+")[0]
    url = os.environ.get(f"TENURE_TEST_{server.upper()}", "")
    if url and server == "postgres":
        migrate = [os.environ["TENURE_TEST_COMMAND"], "migrate", "--store", url]
        subprocess.run(migrate, check=True, capture_output=True)
    return url.replace(server, store, 1)


def run(name: str, url: str, place: Path) -> str:
    _, kinds, count = FLEETS[name]
    ttl_s = TTL_S.get(name.split()[0], 1.5)
    fleet = Fleet(url, f"fleet-{uuid.uuid4().hex}", place, kinds, ttl_s)
    try:
        fleet.hit_leaders(count)
        fleet.finish()
        assert fleet.terms() > count / 2, "most faults end a reign, and another begins"
        return fleet.summary()
    finally:
        fleet.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[str] | None]]:
    """All of them at the same time: they mostly wait."""
    if missing := [name for name in NEEDED if name not in os.environ]:
        pytest.skip(f"needs {missing}, which `cargo xtask test` sets")
    with ThreadPoolExecutor(AT_ONCE) as threads:
        begun: dict[str, Future[str] | None] = {}
        for name, (store, _, _) in FLEETS.items():
            place = tmp_path_factory.mktemp("fleet")
            url = url_of(store, place)
            begun[name] = threads.submit(run, name, url, place) if url else None
        yield begun


@pytest.mark.parametrize("name", FLEETS)
def test_whatever_befalls_a_leader_another_one_leads_and_never_both(
    name: str, runs: dict[str, Future[str] | None], capsys: pytest.CaptureFixture[str]
) -> None:
    future = runs[name]
    if future is None:
        pytest.skip("needs the server that `cargo xtask test` starts")
    summary = future.result()
    with capsys.disabled():
        print(f"\nfleet {name}: {summary}")


@pytest.mark.parametrize(
    ("lines", "passed", "found"),
    [
        ("1 1 10 20\n1 1 90 95\n2 2 50 60\n2 2 99 100\n", [], "I1"),
        ("1 2 10 20\n1 2 30 40\n2 1 50 60\n2 1 99 100\n", [], "I2"),
        ("1 1 10 20\n1 1 30 40\n2 2 50 60\n2 2 99 100\n", [(1, 1), (2, 2), (1, 1)], "fence"),
    ],
)
def test_the_judge_sees_lies(
    lines: str, passed: list[tuple[int, int]], found: str, tmp_path: Path
) -> None:
    if "TENURE_TEST_JUDGE" not in os.environ:
        pytest.skip("needs the checker that `cargo xtask test` builds")
    import sqlite3

    fleet = Fleet(f"sqlite:{tmp_path}/tenure.db", "lies", tmp_path, [], 1.0)
    fleet.record.write_text(lines)
    connection = sqlite3.connect(fleet.data)
    for pid, term in passed:
        sql = "INSERT INTO fleet_writes (election, term, pid) VALUES ('lies', ?, ?)"
        connection.execute(sql, (term, pid))
    connection.commit()
    connection.close()
    with pytest.raises(AssertionError, match=found):
        fleet.finish()
