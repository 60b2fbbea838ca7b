"""The engine does what tenure's simulator says, and an engine that is wrong is found out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenure.compat._engine import Act, Engine, Timing

STORIES = json.loads(
    (Path(__file__).parents[3] / "vectors" / "engine.json").read_text(encoding="utf-8")
)
RIGHT = [story for story in STORIES if "fault" not in story]
WRONG = [story for story in STORIES if "fault" in story]


def make(kind: type[Engine], story: dict[str, Any]) -> Engine:
    names = ("ttl", "renew_every", "margin", "drain", "poll")
    timing = Timing(*(story[name] for name in names))
    return kind(
        timing,
        fail_closed=story["fail_closed"],
        has_become=story["become"],
        has_lose=story["lose"],
    )


def first_difference(kind: type[Engine], story: dict[str, Any]) -> int | None:
    """The step at which the engine does something else than the story, if there is one."""
    engine = make(kind, story)
    for index, (at, event, wanted) in enumerate(story["steps"]):
        acts = [list(act) for act in engine.handle(at, *event)]
        if acts != wanted:
            print(f"{story['name']} step {index} at {at} {event}: {acts} instead of {wanted}")
            return index
    return None


def test_there_are_enough_stories() -> None:
    assert len(RIGHT) >= 200
    assert len(WRONG) >= 9


@pytest.mark.parametrize("story", RIGHT, ids=lambda story: story["name"])
def test_the_engine_does_what_the_simulator_says(story: dict[str, Any]) -> None:
    assert first_difference(Engine, story) is None


@pytest.mark.parametrize("story", WRONG, ids=lambda story: story["fault"])
def test_a_story_of_a_wrong_engine_is_not_ours(story: dict[str, Any]) -> None:
    assert first_difference(Engine, story) == len(story["steps"]) - 1


class TrustFromReply(Engine):
    def _reply(self, now: float, outcome: str, sent_at: float, value: Any = None) -> None:
        super()._reply(now, outcome, now, value)


class LateGrantRevives(Engine):
    def handle(self, now: float, event: str, *args: Any) -> list[Act]:
        self.looks_first = event == "granted"
        return super().handle(now, event, *args)

    def _pass_deadlines(self, now: float) -> None:
        if self.looks_first:
            self.looks_first = False
        else:
            super()._pass_deadlines(now)


class OldTermAgain(Engine):
    def _send_what_is_due(self, now: float) -> None:
        self.led = 0
        super()._send_what_is_due(now)


class UnknownIsYes(Engine):
    def _renew_reply(self, now: float, outcome: str, sent_at: float, value: Any) -> None:
        known = outcome != "unknown"
        args = (outcome, sent_at, value) if known else ("granted", sent_at, self.term)
        super()._renew_reply(now, *args)


class UnknownIsNo(Engine):
    def _renew_reply(self, now: float, outcome: str, sent_at: float, value: Any) -> None:
        super()._renew_reply(now, "refused" if outcome == "unknown" else outcome, sent_at, value)


class SendsTwice(Engine):
    def _send_what_is_due(self, now: float) -> None:
        self.flight = None
        super()._send_what_is_due(now)


class ReleasesFirst(Engine):
    def _settle(self, now: float) -> None:
        busy, self.busy = self.busy, 0
        super()._settle(now)
        self.busy = busy


class ForgetsTold(Engine):
    def _settle(self, now: float) -> None:
        self.relied = False
        super()._settle(now)


class ReleasesRunOut(Engine):
    def _run_out(self, now: float) -> None:
        self._drained(now)


class ForgetsToProbe(Engine):
    def _wait_after_failure(self, now: float) -> None:
        super()._wait_after_failure(now)
        self.failures = 1


class StaysOpen(Engine):
    def _renew_reply(self, now: float, outcome: str, sent_at: float, value: Any) -> None:
        self.fail_closed = False
        super()._renew_reply(now, outcome, sent_at, value)


FAULTS = [
    TrustFromReply, LateGrantRevives, OldTermAgain, UnknownIsYes, UnknownIsNo, SendsTwice,
    ReleasesFirst, ForgetsTold, ReleasesRunOut, ForgetsToProbe, StaysOpen,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_wrong_engine_fails_a_story(fault: type[Engine]) -> None:
    assert any(first_difference(fault, story) is not None for story in RIGHT)
