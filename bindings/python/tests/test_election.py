"""Elections on asyncio: leading, losing, asking, being told."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from helpers import run, until

import tenure


def test_a_lone_instance_leads_and_gives_back(url: str) -> None:
    async def main() -> None:
        election = tenure.Election("e", store=url, metadata={"url": "http://10.0.0.7"})
        assert not election.is_leader
        async with election:
            assert election.is_leader and election.term == 1
            leader = await election.current_leader()
            assert leader is not None
            assert (leader.term, leader.id) == (1, election.id)
            assert leader.metadata == {"url": "http://10.0.0.7"}
            await election.done(1)
        assert not election.is_leader and election.term is None
        assert await election.current_leader() is None
        # Stopped and started again, it is another term.
        async with election:
            assert election.term == 2
            await election.done(2)

    run(main())


def test_a_reign_is_left_early_and_comes_again(url: str) -> None:
    async def main() -> None:
        terms: list[int] = []
        async with tenure.Election("e", store=url, ttl=0.9) as election:
            async for reign in election.reigns():
                async with reign:
                    assert reign.is_leader and reign.is_current and 0 < reign.remaining <= 0.9
                    terms.append(reign.term)
                assert not reign.is_current and reign.lost.reason == "resigned"
                if len(terms) == 2:
                    break
        assert terms == [1, 2]

    run(main())


def test_reigns_of_an_election_that_nobody_started(url: str) -> None:
    async def main() -> None:
        election = tenure.Election("e", store=url, ttl=0.9)
        terms: list[int] = []
        reigns = election.reigns()
        async for reign in reigns:
            async with reign:
                terms.append(reign.term)
            if len(terms) == 2:
                await election.stop()
        assert terms == [1, 2]
        # It takes part no more, and nobody brings it back.
        assert [reign async for reign in reigns] == []
        assert await election.current_leader() is None

    run(main())


def test_work_is_cancelled_with_the_reason_and_the_cancellation_ends_there(url: str) -> None:
    async def main() -> None:
        seen: list[str] = []
        async with tenure.Election("e", store=url) as election:
            async for reign in election.reigns():
                resigning = asyncio.ensure_future(election.resign())
                async with reign:
                    try:
                        await asyncio.sleep(3600)
                    except asyncio.CancelledError as error:
                        seen.append(str(error))
                        # The lease is kept while it winds up.
                        assert reign.is_current and not reign.is_leader
                        raise
                await resigning
                assert reign.lost.reason == "resigned"
                # Nothing of the cancellation is left.
                await asyncio.sleep(0)
                task = asyncio.current_task()
                if sys.version_info >= (3, 11):
                    assert task is not None and task.cancelling() == 0
                break
        assert len(seen) == 1 and "leadership ended: resigned" in seen[0]

    run(main())


def test_an_exception_gives_up_leadership_and_goes_on(url: str) -> None:
    async def main() -> None:
        async with tenure.Election("e", store=url) as election:
            with pytest.raises(KeyError):
                async for reign in election.reigns():
                    async with reign:
                        raise KeyError("x")
            assert not election.is_leader
            assert await election.current_leader() is None

    run(main())


def test_a_cancellation_from_outside_is_not_swallowed(url: str) -> None:
    async def main() -> None:
        async with tenure.Election("e", store=url) as election:

            async def work() -> None:
                async for reign in election.reigns():
                    async with reign:
                        began.set()
                        await asyncio.sleep(3600)

            began = asyncio.Event()
            task = asyncio.ensure_future(work())
            await began.wait()
            # Both at once: the loss, and somebody who cancels.
            resigning = asyncio.ensure_future(election.resign())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await resigning

    run(main())


def test_a_loss_that_comes_as_the_work_ends_strikes_nobody_later(url: str) -> None:
    async def main() -> None:
        async with tenure.Election("e", store=url) as election:
            async for reign in election.reigns():
                async with reign:
                    # As if the loss were told at this very instant, and no await follows.
                    reign._told("deposed")
                for _ in range(3):
                    await asyncio.sleep(0)
                break

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no task groups")
def test_a_task_group_inside_a_reign_is_ended_with_it(url: str) -> None:
    async def main() -> None:
        ended: list[int] = []

        async def child(number: int) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(number)

        async with tenure.Election("e", store=url) as election:
            async for reign in election.reigns():
                async with reign:
                    async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined,unused-ignore]
                        group.create_task(child(1))
                        group.create_task(child(2))
                        await asyncio.sleep(0)
                        asyncio.ensure_future(election.resign())
                break
        assert sorted(ended) == [1, 2]

    run(main())


def test_anyio_scopes_inside_and_outside(url: str) -> None:
    anyio = pytest.importorskip("anyio")

    async def main() -> None:
        async with tenure.Election("e", store=url, ttl=0.9) as election:
            cleaned: list[str] = []
            async for reign in election.reigns():
                async with reign:
                    try:
                        async with anyio.create_task_group() as group:
                            group.start_soon(anyio.sleep, 3600)
                            group.start_soon(election.resign)
                    finally:
                        with anyio.CancelScope(shield=True):
                            await anyio.sleep(0.01)
                            cleaned.append("shielded")
                assert cleaned == ["shielded"] and reign.lost.reason == "resigned"
                break
            # A scope around it ends the reign, and only that.
            with anyio.move_on_after(3600) as scope:
                async for reign in election.reigns():
                    async with reign:
                        scope.cancel()
                        await anyio.sleep(3600)
            assert scope.cancelled_caught
            assert await election.current_leader() is None or not election.is_leader

    run(main())


def test_lead_runs_in_each_reign_and_is_cancelled_on_loss(url: str) -> None:
    async def main() -> None:
        seen: list[Any] = []
        election = tenure.Election("e", store=url, ttl=0.9)

        @election.lead
        async def work(reign: tenure.Reign) -> None:
            seen.append(reign.term)
            try:
                await asyncio.sleep(3600)
            finally:
                seen.append("end")

        @election.lead
        async def other(reign: tenure.Reign) -> None:
            await asyncio.sleep(3600)

        async with election:
            await until(lambda: seen == [1])
            await election.resign()
            await until(lambda: seen == [1, "end", 2])
        assert seen == [1, "end", 2, "end"]

    run(main())


def test_work_that_fails_stops_the_election_and_raises_at_its_end(url: str) -> None:
    async def main() -> None:
        election = tenure.Election("e", store=url)

        @election.lead
        async def work(reign: tenure.Reign) -> None:
            raise KeyError("broken")

        with pytest.raises(KeyError):
            await election.run()
        with pytest.raises(KeyError):
            async with election:
                await asyncio.sleep(3600)
        assert await election.current_leader() is None

    run(main())


def test_run_if_leader(url: str) -> None:
    async def main() -> None:
        one = tenure.Election("e", store=url, ttl=3)
        two = tenure.Election("e", store=url, ttl=3)

        async def work(number: int) -> int:
            await asyncio.sleep(0)
            return number

        assert await one.run_if_leader(work, 7) is None
        async with one, two:
            assert await one.run_if_leader(work, 7) == 7
            assert await two.run_if_leader(work, 7) is None
            with pytest.raises(ZeroDivisionError):
                await one.run_if_leader(lambda: 1 / 0)
            # It is waited for before the lease is given back.
            go = asyncio.Event()
            order: list[str] = []

            async def slow() -> str:
                await go.wait()
                order.append("done")
                return "value"

            working = asyncio.ensure_future(one.run_if_leader(slow))
            await asyncio.sleep(0)
            resigning = asyncio.ensure_future(one.resign())
            await until(lambda: not one.is_leader)
            leader = await two.current_leader()
            assert leader is not None and leader.id == one.id
            go.set()
            assert await working == "value"
            await resigning
            await until(lambda: two.is_leader)
            await two.done(two.term or 0)

    run(main())


def test_once(url: str) -> None:
    async def main() -> None:
        ran: list[tuple[int, int]] = []

        async def work(run: tenure.OnceRun) -> str:
            assert run.is_current and run.key == "v42"
            ran.append((run.attempt, run.term))
            if len(ran) == 1:
                raise KeyError("first")
            return "done"

        def fail(run: tenure.OnceRun) -> int:
            raise KeyError("bad")

        one = tenure.Election("e", store=url, ttl=0.9)
        two = tenure.Election("e", store=url, ttl=0.9)
        results = await asyncio.gather(one.once("v42", work), two.once("v42", work))
        assert sorted(result.outcome for result in results) == ["already", "ran"]
        assert [attempt for attempt, _ in ran] == [1, 2]
        assert await one.once("v42", work) == tenure.OnceResult("already")
        with pytest.raises(KeyError):
            await one.once("bad", fail, tries=1)
        with pytest.raises(tenure.OnceFailed) as failed:
            await one.once("bad", lambda run: 1, tries=1)
        assert failed.value.attempts == 1
        with pytest.raises(ValueError, match="tries"):
            await one.once("bad", lambda run: 1, tries=0)

    run(main())


def test_events_come_in_order_and_end_with_the_election(url: str) -> None:
    async def main() -> None:
        names: list[str] = []
        election = tenure.Election("e", store=url)
        with pytest.raises(tenure.StoppedError):
            election.events()
        async with election:
            events = election.events()

            async def read() -> None:
                async for event in events:
                    names.append(event.name)
                    if event.term is not None:
                        assert event.term == 1
                    if event.name == "stepped_down":
                        assert event.reason == "resigned"

            reading = asyncio.ensure_future(read())
            await asyncio.sleep(0)
            await election.resign()
        await reading
        wanted = [name for name in names if name in ("draining", "stepped_down")]
        assert wanted == ["draining", "stepped_down"]

    run(main())


def test_callbacks_plain_and_async_on_the_loop_they_belong_to(url: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, Any]] = []

        def note(what: str, value: Any) -> None:
            assert asyncio.get_running_loop() is loop
            seen.append((what, value))

        async def on_elected(term: int) -> None:
            note("elected", term)
            await asyncio.sleep(3600)

        async def on_lost(term: int) -> None:
            await asyncio.sleep(0.01)
            note("lost", term)

        election = tenure.Election(
            "e",
            store=url,
            on_elected=on_elected,
            on_lost=on_lost,
            on_change=lambda term: note("change", term),
        )
        async with election:
            await until(lambda: ("elected", 1) in seen)
        # The end of it was told, and waited for, before the lease was given back.
        assert seen.index(("elected", 1)) < seen.index(("change", None)) < seen.index(("lost", 1))
        assert seen[0] == ("change", 1)
        assert len(seen) == 4

    run(main())


def test_a_callback_that_raises_gives_leadership_up_and_is_told(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        errors: list[Exception] = []

        def on_elected(term: int) -> None:
            if term == 1:
                raise KeyError("broken")

        election = tenure.Election(
            "e", store=url, ttl=0.9, on_elected=on_elected, on_error=errors.append
        )
        async with election:
            await until(lambda: bool(errors))
            assert "broken" in str(errors[0]) and isinstance(errors[0], tenure.Error)
            await until(lambda: not election.is_leader)

    run(main())
    assert "on_elected failed" in caplog.text


def test_an_election_is_used_on_its_own_loop(url: str) -> None:
    election = tenure.Election("e", store=url, ttl=0.9)

    async def forget() -> None:
        await election.start()

    async def again() -> None:
        async with election:
            assert election.is_leader

    async def elsewhere() -> None:
        loop = asyncio.new_event_loop()
        try:
            with pytest.raises(tenure.LoopError, match="another event loop"):
                await asyncio.get_running_loop().run_in_executor(
                    None, loop.run_until_complete, election.current_leader()
                )
        finally:
            loop.close()

    async def used_elsewhere() -> None:
        async with election:
            await elsewhere()

    # A loop that was closed under it is gone; the next one takes over.
    run(forget())
    run(again())
    run(used_elsewhere())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": ""}, "name"),
        ({"store": "mysql://db/shop"}, "mysql"),
        ({"store": "postgres://app:hunter2@db:port/shop"}, "postgres"),
        ({"ttl": 3, "renew_every": 2}, "renew_every is 2s, more than 1s"),
        ({"ttl": 3, "drain": 1, "margin": 1}, "margin . drain is 2s, more than 1s"),
        ({"ttl": 0}, "ttl is 0s"),
        ({"ttl": -1}, "ttl is -1"),
        ({"ttl": float("nan")}, "ttl is nan"),
        ({"ttl": 0.001}, "renew_every is .*, less than 1ms"),
        ({"store": "redis://db", "ttl": 0.05}, "ttl is 50ms, less than"),
        ({"profile": "quick"}, "profile"),
        ({"metadata": {"x": float("nan")}}, "metadata"),
        ({"metadata": {"x": "y" * 5000}}, "4"),
        ({"term_floor": 0}, f"term_floor is 0; give a number from 1 to {2**53 - 1}"),
        ({"term_floor": -1}, "term_floor is -1"),
        ({"term_floor": 2**53}, f"term_floor is {2**53}"),
        ({"post_tries": 0}, "post_tries is 0; give a number from 1 to"),
        ({"label": "x" * 300}, "label"),
    ],
)
def test_bad_values_are_refused_with_names_and_numbers(
    url: str, wrong: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        arguments: dict[str, Any] = {"name": "e", "store": url, **wrong}
        tenure.Election(**arguments)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": 7}, "name is 7"),
        ({"store": 7}, "store is 7"),
        ({"ttl": "3s"}, "ttl is '3s'"),
        ({"ttl": True}, "ttl is True"),
        ({"metadata": [1]}, "metadata is"),
        ({"metadata": {"x": object()}}, "metadata is no JSON"),
        ({"on_lost": 7}, "on_lost is 7"),
        ({"term_floor": "x"}, "term_floor is 'x'"),
        ({"post_tries": 1.5}, "post_tries is 1.5"),
    ],
)
def test_bad_types_are_refused_by_name(url: str, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        arguments: dict[str, Any] = {"name": "e", "store": url, **wrong}
        tenure.Election(**arguments)


def test_errors_say_their_kind(tmp_path: Any) -> None:
    async def main() -> None:
        (tmp_path / "file").write_text("not a directory")
        election = tenure.Election("e", store=f"sqlite:{tmp_path}/file/x.db")
        with pytest.raises(tenure.Error) as refused:
            await election.start()
        assert refused.value.kind in ("config", "denied", "unavailable", "corrupt")
        assert isinstance(refused.value.retryable, bool)

    run(main())


def test_many_elections_share_a_candidate(url: str) -> None:
    async def main() -> None:
        candidate = tenure.Candidate(url, label="many")
        elections = [tenure.Election(f"e{number}", candidate) for number in range(20)]
        await asyncio.gather(*(election.start() for election in elections))
        assert all(election.is_leader for election in elections)
        assert len({election.id for election in elections}) == 1
        with pytest.raises(tenure.ConfigError, match="already"):
            await tenure.Election("e0", candidate).start()
        for election in elections:
            await election.done(election.term or 0)
        await asyncio.gather(*(election.stop() for election in elections))

    run(main())


def test_messages(url: str) -> None:
    async def main() -> None:
        seen: list[Any] = []
        election = tenure.Election("e", store=url)

        @election.on("orders")
        async def on_order(message: tenure.Message) -> None:
            assert message.is_current
            seen.append((message.payload, message.term, message.key, message.attempt))
            if message.payload == {"fail": True} and message.attempt == 1:
                raise KeyError("try again")

        async with election:
            await election.notify("orders", {"number": 7})
            await until(lambda: len(seen) == 1)
            posted = await election.post("orders", {"fail": True}, key="a")
            assert posted.is_new and not (await election.post("orders", {}, key="a")).is_new
            await until(lambda: len(seen) == 3)
            with pytest.raises(TypeError, match="payload is no JSON"):
                await election.notify("orders", object())
            with pytest.raises(tenure.ConfigError):
                election.on("late")(on_order)
        assert seen[0] == ({"number": 7}, 1, None, 1)
        assert seen[1:] == [({"fail": True}, 1, "a", 1), ({"fail": True}, 1, "a", 2)]

    run(main())
