"""Real processes on every store: killed, frozen, blocked. An outsider judges what they believed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import TTL_S, Fleet

LONG = bool(os.environ.get("TENURE_TEST_LONG"))
STORES = ["sqlite", "postgres", "redis"]
FACES = ["asyncio", "threads"]


@pytest.fixture(params=[(store, face) for store in STORES for face in FACES], ids="-".join)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    store, face = request.param
    if "TENURE_TEST_JUDGE" not in os.environ:
        pytest.skip("needs the checker that `cargo xtask test` builds")
    if store == "sqlite":
        url = f"sqlite:{tmp_path}/tenure.db"
    else:
        url = os.environ.get(f"TENURE_TEST_{store.upper()}", "")
        if not url:
            pytest.skip(f"needs the {store} server that `cargo xtask test` starts")
    if store == "postgres":
        subprocess.run(
            [os.environ["TENURE_TEST_COMMAND"], "migrate", "--store", url],
            check=True,
            capture_output=True,
        )
    fleet = Fleet(url, f"fleet-{uuid.uuid4().hex}", tmp_path / "record", face)
    try:
        yield fleet
    finally:
        fleet.kill()


def test_whatever_befalls_a_leader_another_one_leads_and_never_both(fleet: Fleet) -> None:
    for _ in range(3):
        fleet.start()
    faults = ["kill", "stop", "hold the GIL", "block"]
    if fleet.face == "threads":
        # A thread that sleeps blocks nobody.
        faults.remove("block")
    # 35 faults over all stores and faces, and 252 at length.
    rounds = 12 if LONG else 1 if "postgres" in fleet.url else 2
    term = 0
    for fault in faults * rounds:
        pid, term = fleet.leader(term)
        began = time.monotonic()
        if fault == "kill":
            fleet.signal(pid, signal.SIGKILL)
            fleet.start()
        elif fault == "stop":
            fleet.signal(pid, signal.SIGSTOP)
        else:
            fleet.tell(pid, fault)
        successor, next_term = fleet.leader(term)
        took = time.monotonic() - began
        assert next_term > term
        # Within the lease and what a busy machine needs; the fault lasts for longer than a ttl.
        assert took < 3 * TTL_S + 5, (fault, took)
        if fault == "stop":
            fleet.signal(pid, signal.SIGCONT)
    fleet.end()
    terms = fleet.judge()
    assert terms > len(faults) * rounds


def test_the_judge_sees_lies(fleet: Fleet) -> None:
    if "sqlite" not in fleet.url or fleet.face != "asyncio":
        pytest.skip("one store is enough for that")
    fleet.record.write_text("1 1 10 20\n1 1 90 95\n2 2 50 60\n2 2 99 100\n")
    with pytest.raises(AssertionError, match="I1"):
        fleet.judge()
