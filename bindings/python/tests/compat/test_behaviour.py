"""What the old class got wrong, and what its users rely on. The database here is a stand-in that
fails on command; test_databases.py has the real ones."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from tenure.compat.leader_election import LeaderElection, LeaderElectionConfig, run_if_leader


class Stand:
    """One lease, with the functions of tenure; what it is told to do to the next calls."""

    def __init__(self) -> None:
        self.holder, self.term = "", 0
        self.calls: list[tuple[Any, ...]] = []
        self.fails: Exception | None = None
        self.hangs = False
        self.returns: Any = ...

    async def execute(self, sql: str, *args: Any) -> Any:
        verb = sql.split("tenure_")[1].split("(")[0]
        self.calls.append((verb, *args))
        if self.returns is not ...:
            return self.returns
        if self.fails is not None:
            raise self.fails
        if self.hangs:
            await asyncio.sleep(3600)
        who = args[1]
        if verb == "try_lead":
            if self.holder not in ("", who):
                return [(False, self.term, 500)]
            self.term += self.holder == ""
            self.holder = who
            return [(True, self.term, args[2])]
        if verb == "renew":
            return [(self.holder == who, self.term, 500)]
        held = self.holder == who
        self.holder = "" if held else self.holder
        return [(held,)]

    def verbs(self) -> list[str]:
        return [call[0] for call in self.calls]


async def until(holds: Any, limit: float = 10.0) -> None:
    by = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < by, "nothing came of it"
        await asyncio.sleep(0.01)


def config(**more: Any) -> LeaderElectionConfig:
    fields = {"heartbeat_interval": 0.2, "heartbeat_timeout": 1, **more}
    return LeaderElectionConfig("jobs", "a", **fields)


def test_the_configuration_is_the_old_one() -> None:
    plain = LeaderElectionConfig("jobs", "a")
    assert (plain.heartbeat_interval, plain.heartbeat_timeout) == (10.0, 30)
    become, lose = (lambda: None), (lambda: None)
    full = LeaderElectionConfig("jobs", "a", 5.0, 15, become, lose)
    assert full.on_become_leader is become
    assert full.on_lose_leadership is lose
    db = Stand()
    election = LeaderElection(db, full)
    assert election.db is db
    assert election.config is full
    assert election.is_leader is False


def test_start_returns_after_the_become_callback_and_renewals_do_not_wait_for_it() -> None:
    async def main() -> None:
        db = Stand()
        told: list[str] = []

        async def become() -> None:
            await until(lambda: db.verbs().count("renew") >= 3)
            told.append("become")

        election = LeaderElection(db, config(on_become_leader=become))
        await election.start()
        assert told == ["become"]
        assert election.is_leader
        assert db.calls[0][2].startswith("a#")
        await election.stop()

    asyncio.run(main())


def test_the_lease_is_given_back_after_the_loss_callback() -> None:
    async def main() -> None:
        db = Stand()
        seen: list[tuple[bool, bool]] = []

        async def lose() -> None:
            assert not election.is_leader
            await asyncio.sleep(0.05)
            seen.append((db.holder != "", "release" in db.verbs()))

        election = LeaderElection(db, config(on_lose_leadership=lose))
        await election.start()
        await election.stop()
        assert seen == [(True, False)]
        assert db.verbs()[-1] == "release"
        assert db.holder == ""
        await election.start()
        assert election.is_leader, "stop, then start"
        await election.stop()

    asyncio.run(main())


def test_a_loss_callback_that_hangs_keeps_neither_stop_nor_leadership() -> None:
    async def main() -> None:
        db = Stand()
        election = LeaderElection(db, config(on_lose_leadership=lambda: asyncio.sleep(3600)))
        await election.start()
        began = time.monotonic()
        await election.stop()
        assert time.monotonic() - began < 1.0, "a sixth of the timeout, on a busy machine"
        assert "release" not in db.verbs(), "it runs out"
        assert not election.is_leader

    asyncio.run(main())


def test_an_answer_holds_the_lease_for_the_drain() -> None:
    async def main() -> None:
        db = Stand()
        election = LeaderElection(db, config(heartbeat_timeout=3))
        await election.start()
        assert election.is_leader
        began = time.monotonic()
        await election.stop()
        assert time.monotonic() - began >= 0.39, "4/5 of min(3 s / 6, 5 s)"
        assert db.verbs()[-1] == "release"
        # Nobody asked: it is given back at once.
        await election.start()
        began = time.monotonic()
        await election.stop()
        assert time.monotonic() - began < 0.39

    asyncio.run(main())


def test_work_of_run_if_leader_is_waited_for() -> None:
    async def main() -> None:
        db = Stand()
        election = LeaderElection(db, config(heartbeat_timeout=6))
        assert await run_if_leader(election, lambda: 7) is None
        await election.start()
        assert await run_if_leader(election, lambda: 7) == 7

        async def work() -> str:
            await asyncio.sleep(0.2)
            return db.holder

        running = asyncio.create_task(run_if_leader(election, work))
        await asyncio.sleep(0.05)
        await election.stop()
        assert (await running) != "", "the lease was there until the work had ended"
        assert db.holder == ""

    asyncio.run(main())


def test_errors_end_neither_the_loop_nor_the_process() -> None:
    async def main() -> None:
        db = Stand()
        told: list[str] = []

        def lose() -> None:
            told.append("lose")
            raise RuntimeError("a callback of the program's own")

        election = LeaderElection(db, config(on_lose_leadership=lose))
        db.fails = ConnectionError("the database is away")
        await election.start()
        assert not election.is_leader
        db.fails = None
        await until(lambda: election.is_leader)
        db.fails = ConnectionError("away again")
        await until(lambda: not election.is_leader)
        assert told == ["lose"] or not told
        db.fails = None
        await until(lambda: election.is_leader)
        assert told == ["lose"]
        await election.stop()

    asyncio.run(main())


def test_trust_ends_by_itself_while_the_database_hangs_or_the_loop_is_blocked() -> None:
    async def main() -> None:
        db = Stand()
        election = LeaderElection(db, config())
        await election.start()
        db.hangs = True
        await until(lambda: not election.is_leader)
        db.hangs = False
        await until(lambda: election.is_leader)
        time.sleep(2.0)
        assert not election.is_leader, "nobody renewed, and no task has run"
        before = db.term
        db.holder = "somebody else"
        await asyncio.sleep(0.3)
        assert not election.is_leader
        assert db.term == before
        await election.stop()
        assert db.holder == "somebody else"

    asyncio.run(main())


@pytest.mark.parametrize("returned", ["SELECT 1", None, [("t",)], [("yes", 1, 1)], [], True])
def test_what_is_no_row_is_a_type_error_and_never_leadership(returned: Any) -> None:
    async def main() -> None:
        db = Stand()
        db.returns = returned
        election = LeaderElection(db, config())
        with pytest.raises(TypeError, match="must return"):
            await election.start()
        assert not election.is_leader

    asyncio.run(main())


def test_a_stand_in_that_answers_with_a_bare_bool_is_asked_as_before() -> None:
    class Mock:
        def __init__(self) -> None:
            self.calls: list[tuple[Any, ...]] = []

        async def execute(self, *args: Any) -> list[list[bool]]:
            self.calls.append(args)
            return [[True]]

    async def main() -> None:
        db = Mock()
        election = LeaderElection(db, config())
        await election.start()
        assert election.is_leader
        assert db.calls[-1][0] == "SELECT try_become_leader($1, $2, $3)"
        assert db.calls[-1][3] == 1
        await election.stop()
        assert db.calls[-1][0] == "SELECT step_down($1, $2)"

    asyncio.run(main())


def test_timings_that_the_old_class_took_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        db = Stand()
        election = LeaderElection(db, config(heartbeat_interval=0.9))
        for _ in range(2):
            await election.start()
            await asyncio.sleep(1.2)
            assert election.is_leader, "it beats at a third of the timeout"
            await election.stop()

    asyncio.run(main())
    assert sum("more than a third" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"heartbeat_timeout": 0}, ValueError),
        ({"heartbeat_timeout": "30"}, TypeError),
        ({"heartbeat_interval": -1}, ValueError),
        ({"heartbeat_interval": float("nan")}, ValueError),
        ({"on_become_leader": 7}, TypeError),
    ],
)
def test_bad_arguments_are_named(wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(wrong))):
        LeaderElection(Stand(), config(**wrong))


def test_a_db_without_execute_is_refused() -> None:
    with pytest.raises(TypeError, match="execute"):
        LeaderElection(object(), config())


def test_a_forked_child_leads_nothing() -> None:
    async def main() -> None:
        election = LeaderElection(Stand(), config(heartbeat_timeout=30))
        await election.start()
        assert election.is_leader
        child = os.fork()
        if child == 0:
            os._exit(7 if election.is_leader else 0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await election.stop()

    asyncio.run(main())


def test_a_stop_that_races_the_first_attempt_leaves_no_leader() -> None:
    async def main() -> None:
        db = Stand()
        election = LeaderElection(db, config())
        starting = asyncio.create_task(election.start())
        await asyncio.sleep(0)
        await election.stop()
        await starting
        assert not election.is_leader
        assert db.holder == ""

    asyncio.run(main())
