"""Elections for programs with threads."""

from __future__ import annotations

import operator
import threading
import time
from typing import Any

import pytest
from helpers import PATIENCE_S, python

import tenure
from tenure import blocking


def until(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def test_a_lone_instance_leads_and_gives_back(url: str) -> None:
    election = blocking.Election("e", store=url, metadata={"a": 1})
    assert not election.is_leader and election.run_if_leader(lambda: 1) is None
    with election:
        assert election.is_leader and election.term == 1
        leader = election.current_leader()
        assert leader is not None and leader.id == election.id and leader.metadata == {"a": 1}
        assert election.run_if_leader(operator.add, 1, 2) == 3
        with pytest.raises(ZeroDivisionError):
            election.run_if_leader(lambda: 1 / 0)
        election.done(1)
    assert not election.is_leader
    with election:
        assert election.term == 2
        election.done(2)
    election.stop()


def test_reigns_and_their_loss(url: str) -> None:
    with blocking.Election("e", store=url, ttl=0.9) as election:
        for reign in election.reigns():
            with reign:
                assert reign.is_current and reign.is_leader and reign.remaining > 0
                assert not reign.lost.wait(0) and reign.lost.reason is None
                resigning = threading.Thread(target=election.resign)
                resigning.start()
                assert reign.lost.wait(PATIENCE_S) and reign.lost.reason == "resigned"
                # The lease is kept while it winds up.
                leader = election.current_leader()
                assert leader is not None and leader.term == reign.term
            resigning.join()
            assert not reign.is_current
            if reign.term == 2:
                break


def test_an_exception_gives_up_leadership_and_goes_on(url: str) -> None:
    with blocking.Election("e", store=url) as election:
        with pytest.raises(KeyError):
            for reign in election.reigns():
                with reign:
                    raise KeyError("x")
        assert election.current_leader() is None


def test_lead_runs_in_a_thread_and_is_waited_for(url: str) -> None:
    election = blocking.Election("e", store=url, ttl=0.9)
    seen: list[Any] = []

    @election.lead
    def work(reign: blocking.Reign) -> None:
        seen.append(reign.term)
        assert threading.current_thread() is not threading.main_thread()
        reign.lost.wait()
        seen.append("end")

    with election:
        until(lambda: seen == [1])
        election.resign()
        until(lambda: seen == [1, "end", 2])
    assert seen == [1, "end", 2, "end"]


def test_work_that_fails_stops_the_election(url: str) -> None:
    election = blocking.Election("e", store=url)

    @election.lead
    def work(reign: blocking.Reign) -> None:
        raise KeyError("broken")

    with pytest.raises(KeyError):
        election.run()
    assert election.current_leader() is None
    election.stop()


def test_callbacks_run_one_after_the_other_on_one_thread(url: str) -> None:
    seen: list[Any] = []

    def note(what: str) -> Any:
        def add(value: Any) -> None:
            seen.append((what, value, threading.current_thread().name))

        return add

    election = blocking.Election(
        "e", store=url, on_elected=note("elected"), on_lost=note("lost"), on_change=note("change")
    )
    with election:
        until(lambda: len(seen) == 2)
    assert [(what, value) for what, value, _ in seen] == [
        ("change", 1),
        ("elected", 1),
        ("change", None),
        ("lost", 1),
    ]
    assert len({name for _, _, name in seen}) == 1


def test_events_once_and_messages(url: str) -> None:
    election = blocking.Election("e", store=url, ttl=0.9)
    seen: list[Any] = []
    names: list[str] = []

    @election.on("orders")
    def on_order(message: tenure.Message) -> None:
        seen.append((message.payload, message.key))

    with election:
        events = election.events()
        reading = threading.Thread(
            target=lambda: names.extend(event.name for event in events), daemon=True
        )
        reading.start()
        election.notify("orders", 1)
        election.post("orders", 2, key="k")
        until(lambda: len(seen) == 2)
        election.resign()
    reading.join(PATIENCE_S)
    assert "stepped_down" in names and not reading.is_alive()
    assert sorted(seen, key=str) == [(1, None), (2, "k")]
    result = blocking.Election("o", store=url).once("v1", lambda run: run.term)
    assert result == tenure.OnceResult("ran", 1)


def test_use_after_stop_is_refused_clearly(url: str) -> None:
    election = blocking.Election("e", store=url)
    with election:
        for reign in election.reigns():
            with reign:
                pass
            break
    with pytest.raises(tenure.StoppedError):
        election.events()
    election.stop()


def test_whoever_waits_when_an_election_is_stopped_is_told(url: str) -> None:
    for _ in range(30):
        election = blocking.Election("e", store=url, at_once=True)
        election.start()
        ended: list[bool] = []

        def read(events: Any = election.events(), ended: list[bool] = ended) -> None:
            for _ in events:
                pass
            ended.append(True)

        def lead(election: blocking.Election = election, ended: list[bool] = ended) -> None:
            for reign in election.reigns():
                with reign:
                    reign.lost.wait()
            ended.append(True)

        threads = [threading.Thread(target=work, daemon=True) for work in (read, lead)]
        for thread in threads:
            thread.start()
        election.stop()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert ended == [True, True]


IN_A_HANDLER = """
import asyncio, signal, sys
import tenure
from tenure import blocking

election = blocking.Election("e", store=sys.argv[1], ttl=3)
election.start()
hand_over = asyncio.run_coroutine_threadsafe

def interrupted(work, loop):
    asyncio.run_coroutine_threadsafe = hand_over
    signal.raise_signal(signal.SIGTERM)
    return hand_over(work, loop)

def stop(number, frame):
    election.stop()
    print("stopped")

signal.signal(signal.SIGTERM, stop)
asyncio.run_coroutine_threadsafe = interrupted
try:
    election.current_leader()
except tenure.StoppedError:
    print("told so")
"""


def test_a_signal_handler_may_stop_it_in_the_middle_of_a_call(url: str) -> None:
    # Celery beat does that when it is told to end.
    ended = python(IN_A_HANDLER, url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split("\n")[:2] == ["stopped", "told so"]
