"""One candidate in one election: every decision about leading, and no means of acting.

No clock, no I/O, no tasks: it takes events and instants, and returns what is to be done. Its rules
are those of tenure's own machine, and the vectors of tenure's simulator hold it to them. The drop-in
in TypeScript has the same engine.

All times are milliseconds on one local axis. With ``s``, the instant at which the last granted
request was *sent*::

    s          s + renew_every        step down          trust ends         s + ttl
    |----------------|------------------|------------------|------------------|
                                        |<---- drain ----->|<---- margin ---->|

Events: ``start``, ``stop``, ``tick``, ``granted(sent_at, term)``, ``refused(sent_at, remaining)``,
``unknown(sent_at)``, ``ask``, ``begin``, ``end``. Actions: ``acquire(seq, above)``, ``renew(term)``,
``release(term, seq)``, ``lead`` and ``extend(term, step_down_at, until)``, ``step_down(term, reason,
until)``, ``overdue(term)``, ``vacated(term, released)``, ``answer(yes)``, ``wake(from, to)``,
``sleep()``. A term of 0 is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Window = tuple[float, float]
Act = tuple[Any, ...]

# After so many unknown outcomes in a row it takes back what it may hold, instead of asking for more:
# one whose answers come too late would else keep everybody from leading.
PROBE_AFTER = 2


@dataclass(frozen=True)
class Timing:
    """The durations of a lease, in milliseconds."""

    ttl: float
    renew_every: float
    margin: float
    drain: float
    poll: float

    @classmethod
    def of(cls, ttl: float, renew_every: float) -> Timing:
        """The timing of a drop-in: a stop takes min(ttl/6, 5 s), and a fifth of that is for the
        release."""
        renew_every = min(renew_every, ttl / 3)
        margin = max(min(max(ttl / 20, 5.0), 2_000.0), ttl / 100)
        drain = min(ttl / 6, 5_000.0) * 4 / 5
        return cls(ttl, renew_every, margin, drain, renew_every)

    def step_down_at(self, sent_at: float) -> float:
        return sent_at + self.ttl - self.margin - self.drain

    def trust_ends_at(self, sent_at: float) -> float:
        return sent_at + self.ttl - self.margin


class Engine:
    """Give it events with :meth:`handle`, carry out the actions in order."""

    def __init__(
        self,
        timing: Timing,
        *,
        fail_closed: bool = False,
        has_become: bool = False,
        has_lose: bool = False,
    ) -> None:
        self.timing = timing
        self.fail_closed = fail_closed
        self.has_become = has_become
        self.has_lose = has_lose
        self.state = "out"
        self.want = False
        self.flight: str | None = None
        self.seq = 0
        self.led = 0
        self.failures = 0
        self.doubt = False
        self.runs_out_at = 0.0
        self.busy = 0
        self.relied = False
        self.stop_by: float | None = None
        # Of the present state, where it has them.
        self.term = 0
        self.sent_at = 0.0
        self.next: Window = (0.0, 0.0)
        self.drain_until = 0.0
        self.until = 0.0
        self.aborted = False
        self.ours = True
        self.give_up_at = 0.0
        # A reign was stepped down from, and its lease neither given back nor left to run out.
        self.unsettled = False
        self.orderly = False
        self.overdue = False
        self.acts: list[Act] = []

    def is_leader(self, now: float) -> bool:
        """May something be started? False by itself when the time has come, whatever hangs."""
        return self.state == "leading" and now < self.timing.step_down_at(self.sent_at)

    @property
    def is_over(self) -> bool:
        """It was stopped, holds nothing and waits for nothing."""
        return self.stop_by is not None and self.state == "out" and self.flight is None

    def handle(self, now: float, event: str, *args: Any) -> list[Act]:
        """Takes one event. Deadlines that have passed come first: no late answer revives a reign."""
        if event in ("ask", "begin"):
            leads = self.is_leader(now)
            if event == "begin":
                self.busy += leads
            else:
                self.relied = self.relied or leads
            return [("answer", leads)]
        self.acts = []
        self._pass_deadlines(now)
        if event in ("granted", "refused", "unknown"):
            self._reply(now, event, *args)
        elif event == "start":
            self.want = True
            if self.state in ("out", "waiting"):
                self._wait((now, now))
        elif event == "stop":
            if self.stop_by is None:
                self.stop_by = now + self.timing.drain
            self._leave(now)
        elif event == "end":
            self.busy = max(self.busy - 1, 0)
        self._advance(now)
        self._settle(now)
        wake = self._wake()
        self.acts.append(("wake", *wake) if wake else ("sleep",))
        return self.acts

    def _advance(self, now: float) -> None:
        self._pass_deadlines(now)
        self._send_what_is_due(now)

    def _settle(self, now: float) -> None:
        """What becomes of a reign that was stepped down from, as soon as that is clear (I8)."""
        if not self.unsettled:
            return
        relied = self.relied and not self.has_lose
        if self.busy > 0:
            if self.stop_by is None or now < self.stop_by:
                return
            ends = self._run_out
        elif not relied:
            ends = self._drained
        elif self.orderly:
            if not self.overdue:
                return
            ends = self._drained
        else:
            ends = self._run_out
        self.unsettled = False
        self._pass_deadlines(now)
        ends(now)
        self._advance(now)

    def _pass_deadlines(self, now: float) -> None:
        if self.state == "leading" and now >= self.timing.step_down_at(self.sent_at):
            self._step_down(now, "not_renewed", self.timing.trust_ends_at(self.sent_at))
        elif self.state == "draining":
            if now >= min(self.drain_until, self.timing.trust_ends_at(self.sent_at)):
                self._end(now, ours=True)
        if self.state == "ending" and not self.aborted and now >= self.until:
            self.aborted = True
            if self.unsettled:
                self.overdue = True
                self.acts.append(("overdue", self.term))

    def _end(self, until: float, ours: bool) -> None:
        self.state, self.until, self.aborted, self.ours = "ending", until, False, ours

    def _told_to_stop(self, now: float, reason: str, until: float) -> None:
        self.acts.append(("step_down", self.term, reason, max(until, now)))
        self.unsettled, self.overdue, self.orderly = True, False, reason == "resigned"
        self.busy += self.has_lose

    def _step_down(self, now: float, reason: str, until: float) -> None:
        """A forced end. Work may wind up until then; nothing revives it (I3)."""
        self._told_to_stop(now, reason, until)
        self._end(until, ours=reason != "deposed")

    def _leave(self, now: float) -> None:
        self.want = False
        if self.state == "leading":
            self._told_to_stop(now, "resigned", self.timing.trust_ends_at(self.sent_at))
            self.state, self.drain_until = "draining", now + self.timing.drain
        elif self.state in ("waiting", "out"):
            # The answer to an acquire that is under way decides what is left to give back.
            if self.state == "waiting" and self.flight == "acquire":
                return
            self._take_back(now)

    def _take_back(self, now: float) -> None:
        """Takes back an acquire that may have been granted (C2); not a lease that is to run out."""
        if self.doubt and now >= self.runs_out_at:
            self._release(now, 0)
        else:
            self._vacated(now, 0, released=True)

    def _drained(self, now: float) -> None:
        renewing = self.flight == "renew"
        lapsed = now >= self.sent_at + self.timing.ttl and not renewing
        if self.state == "draining" or (self.state == "ending" and self.ours and not lapsed):
            self._release(now, self.term)
        elif self.state == "ending":
            self._vacated(now, self.term, released=not self.ours)

    def _run_out(self, now: float) -> None:
        """Somebody has not said that they are done: the lease is not given back (I8)."""
        if self.state not in ("draining", "ending"):
            return
        ours = self.state == "draining" or self.ours
        if ours:
            self.runs_out_at = self.sent_at + self.timing.ttl
        self._vacated(now, self.term, released=not ours)
        if self.state == "waiting" and ours:
            self.next = self._spread(self.runs_out_at)

    def _release(self, now: float, term: int) -> None:
        self.failures = 0
        self.led = max(self.led, term)
        self.state, self.term, self.next = "releasing", term, (now, now)
        self.give_up_at = now + self.timing.renew_every

    def _vacated(self, now: float, term: int, released: bool) -> None:
        self.acts.append(("vacated", term, released))
        self.failures = 0
        if self.want:
            self._wait((now, now))
        else:
            self.state = "out"

    def _wait(self, window: Window) -> None:
        self.state, self.next = "waiting", window

    def _wait_after_failure(self, now: float) -> None:
        self.failures += 1
        self._wait(self._backoff(now, self.timing.renew_every))

    def _send_what_is_due(self, now: float) -> None:
        if self.flight is not None or self.state in ("out", "ending") or now < self.next[0]:
            return
        if self.state == "waiting":
            if not self.want:
                return
            if self.failures >= PROBE_AFTER:
                self.flight = "probe"
                self.acts.append(("release", 0, self.seq))
            else:
                self.flight = "acquire"
                self.seq += 1
                self.acts.append(("acquire", self.seq, self.led))
        elif self.state == "releasing":
            self.flight = "release"
            self.acts.append(("release", self.term, self.seq))
        else:
            self.flight = "renew"
            self.acts.append(("renew", self.term))

    def _reply(self, now: float, outcome: str, sent_at: float, value: Any = None) -> None:
        flight, self.flight = self.flight, None
        if flight == "acquire":
            self._acquire_reply(now, outcome, sent_at, value)
        elif flight == "renew":
            self._renew_reply(now, outcome, sent_at, value)
        elif flight == "release" and self.state == "releasing":
            self._release_reply(now, outcome)
        elif flight == "probe":
            if outcome != "unknown":
                self.failures = 0
            elif self.state == "waiting":
                self._wait_after_failure(now)

    def _acquire_reply(self, now: float, outcome: str, sent_at: float, value: Any) -> None:
        if outcome == "granted" and value > self.led:
            self.failures = 0
            if not self.want:
                self._release(now, value)
            elif now >= self.timing.step_down_at(sent_at):
                # Too old to be of use. Never led, so asking again heals it.
                self.doubt = True
                self._wait_after_failure(now)
            else:
                self._lead(value, sent_at)
        elif outcome == "refused":
            self.failures = 0
            poll = self.timing.poll
            wait = poll if value is None else min(max(value, self.timing.ttl / 100), poll)
            if self.want:
                self._wait(self._spread(now + wait))
            else:
                self._take_back(now)
        else:
            # Unknown, or a term that was led before (C1).
            self.doubt = True
            if self.want:
                self._wait_after_failure(now)
            else:
                self._take_back(now)

    def _lead(self, term: int, sent_at: float) -> None:
        self.state, self.term, self.sent_at = "leading", term, sent_at
        self.led, self.relied = term, False
        self.busy += self.has_become
        self._renew_after(sent_at)
        self._trusted("lead")

    def _trusted(self, word: str) -> None:
        timing, sent_at = self.timing, self.sent_at
        instants = timing.step_down_at(sent_at), timing.trust_ends_at(sent_at)
        self.acts.append((word, self.term, *instants))

    def _renew_after(self, sent_at: float) -> None:
        due = sent_at + self.timing.renew_every
        self.next = (due - self.timing.renew_every / 5, due)

    def _renew_reply(self, now: float, outcome: str, sent_at: float, value: Any) -> None:
        holds = self.state not in ("out", "waiting")
        if outcome == "granted" and holds and value == self.term:
            self.failures = 0
            if self.state in ("leading", "draining"):
                self.sent_at = sent_at
                self._renew_after(sent_at)
                self._trusted("extend")
            elif self.state == "ending":
                # The step-down was final: there is only something to release.
                self.sent_at = sent_at
        elif outcome == "refused":
            if self.state == "leading":
                self._step_down(now, "deposed", now)
            elif self.state == "draining":
                self._end(now, ours=False)
            elif self.state == "ending":
                self.ours, self.until = False, min(self.until, now)
        else:
            self.failures += 1
            if self.state in ("leading", "draining"):
                self.next = self._backoff(now, self.timing.renew_every / 4)
            if self.state == "leading" and self.fail_closed:
                self._step_down(now, "renewal_failed", self.timing.trust_ends_at(self.sent_at))

    def _release_reply(self, now: float, outcome: str) -> None:
        if outcome != "unknown":
            self.doubt = False
            self._vacated(now, self.term, released=True)
            return
        self.failures += 1
        again = self._backoff(now, self.timing.renew_every / 4)
        # Where no grant is known of, one try is enough; a lease that nobody renews ends.
        if not self.term or again[1] >= self.give_up_at:
            self._vacated(now, self.term, released=False)
        else:
            self.next = again

    def _backoff(self, now: float, longest: float) -> Window:
        span = longest / 8 * (1 << min(max(self.failures - 1, 0), 3))
        return (now + span / 2, now + span)

    def _spread(self, instant: float) -> Window:
        return (instant, instant + min(self.timing.ttl / 20, 50.0))

    def _wake(self) -> Window | None:
        wake = self._state_wake()
        if self.stop_by is not None and self.unsettled:
            by = self.stop_by
            wake = (wake[0], min(wake[1], by)) if wake and wake[0] <= by else (by, by)
        return wake

    def _state_wake(self) -> Window | None:
        if self.state in ("waiting", "releasing"):
            return None if self.flight else self.next
        if self.state == "ending":
            return None if self.aborted else (self.until, self.until)
        if self.state == "out":
            return None
        deadline = self.timing.step_down_at(self.sent_at)
        if self.state == "draining":
            deadline = min(self.timing.trust_ends_at(self.sent_at), self.drain_until)
        if self.flight or self.next[0] >= deadline:
            return (deadline, deadline)
        return (self.next[0], min(self.next[1], deadline))
