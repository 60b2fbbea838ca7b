"""A fleet of processes that take part in one election, the network between them and their store,
and what an outsider can say about them.

Each process appends to one file whenever it asks whether it leads: the time before and after the
question, on a clock that all processes of the host share and that counts suspend.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from believing import now_ns, prepare, writes
from helpers import PATIENCE_S

HERE = Path(__file__).parent
LOOK_EVERY_S = 0.01

# What may befall a leader of each kind. What the old class does when it is frozen, and when its
# connection breaks, is known: it believes for ever.
BY_NETWORK = ["hold", "cut", "mute", "reset"]
FAULTS = {
    "asyncio": ["block", "hold", "freeze", "kill", "hold the GIL", "cut", "mute", "reset"],
    "threads": ["hold the GIL", "cut", "freeze", "kill", "mute", "hold", "reset"],
    "drop-in": ["hold", "freeze", "block", "kill", "cut", "hold the GIL", "end", "mute", "reset"],
    "rust": ["cut", "freeze", "kill", "hold", "mute", "reset"],
    "old": ["hold", "kill", "end"],
}
# It asks less often than the others, so it must be helped to lead.
OLD_LEADS_EVERY = 5
# They end no reign.
MAY_PASS = {"reset"}
# Afterwards the process tries to write under its old term.
SURVIVED = {"freeze", "block", "hold the GIL", *BY_NETWORK}


class Network:
    """The project's proxy: each lane leads to the server, until it is told not to."""

    def __init__(self, url: str, lanes: int) -> None:
        self._url = urlsplit(url)
        command = [os.environ["TENURE_TEST_PROXY"], str(self._url.hostname), str(self._url.port)]
        self._proxy = subprocess.Popen(
            [*command, str(lanes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._ports = [int(self._hear()) for _ in range(lanes)]

    def url(self, lane: int) -> str:
        """The address of the store through this lane."""
        user, at, _ = self._url.netloc.rpartition("@")
        place = f"{user}{at}127.0.0.1:{self._ports[lane]}"
        return urlunsplit(self._url._replace(netloc=place))

    def order(self, lane: int, word: str) -> None:
        """Has it done, and waits until it is."""
        assert self._proxy.stdin is not None
        self._proxy.stdin.write(f"{lane} {word}\n")
        self._proxy.stdin.flush()
        said = self._hear()
        assert said == "done", said

    def close(self) -> None:
        assert self._proxy.stdin is not None and self._proxy.stdout is not None
        self._proxy.stdin.close()
        self._proxy.wait(PATIENCE_S)
        self._proxy.stdout.close()

    def _hear(self) -> str:
        assert self._proxy.stdout is not None
        return self._proxy.stdout.readline().strip()


@dataclass
class Span:
    """From the end of its first question of a term to the beginning of its last, a process believed
    for certain."""

    begin: int
    end: int


@dataclass
class Member:
    """One process."""

    kind: str
    lane: int
    process: subprocess.Popen[str]


class Fleet:
    """Processes of one election, and their record."""

    def __init__(self, url: str, name: str, place: Path, kinds: list[str], ttl_s: float) -> None:
        self.name, self.kinds, self.ttl_s = name, kinds, ttl_s
        self.is_advisory = url.startswith("postgres+advisory")
        self._url, self._network = url, None
        self.data = url.replace("+advisory", "")
        if url.startswith("sqlite"):
            self.data = str(place / "data.db")
        else:
            self._network = Network(url, len(kinds))
        prepare(self.data)
        self.record = place / "record"
        self.record.touch()
        self._read = 0
        self._spans: dict[tuple[int, int], Span] = {}
        self._refused: set[tuple[int, int]] = set()
        self._latest = 0
        self._members: dict[int, Member] = {}
        self._killed: dict[int, int] = {}
        self._hit: Counter[str] = Counter()
        self._led: Counter[str] = Counter()
        self._gaps_s: list[float] = []

    # Processes

    def start(self, lane: int) -> int:
        kind = self.kinds[lane]
        url = self._url if self._network is None else self._network.url(lane)
        command = [sys.executable, "-X", "dev", "-W", "error"]
        if kind == "rust":
            milliseconds = str(int(self.ttl_s * 1000))
            believer = os.environ["TENURE_TEST_BELIEVER"]
            command = [believer, url, self.name, str(self.record), milliseconds]
        else:
            is_native = kind in ("asyncio", "threads")
            script = HERE / "worker.py" if is_native else HERE / "compat" / "neighbour.py"
            command += [str(script), kind, url, self.data, self.name, str(self.record)]
            command.append(str(self.ttl_s))
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        self._members[process.pid] = Member(kind, lane, process)
        return process.pid

    def close(self) -> None:
        """Ends whatever is left of it, also of a fleet that failed."""
        for member in self._members.values():
            member.process.kill()
            _wait(member.process)
        self._members.clear()
        if self._network is not None:
            self._network.close()

    # Faults

    def hit_leaders(self, count: int) -> None:
        """Does something to so many leaders, one after the other, each time another thing; and waits
        each time until another one leads."""
        for lane in range(len(self.kinds)):
            self.start(lane)
        done: Counter[str] = Counter()
        beyond = 0
        for number in range(count):
            if number % OLD_LEADS_EVERY == 0 and "old" in self.kinds:
                beyond = self.let_lead("old", beyond)
            pid, term = self.leader(beyond)
            kind = self._members[pid].kind
            faults = self._faults(kind)
            fault = faults[done[kind] % len(faults)]
            self._led[kind] += 1
            self.hit(pid, term, fault)
            done[kind] += 1
            beyond = term - 1 if fault in MAY_PASS else term

    def let_lead(self, kind: str, beyond: int) -> int:
        """Cuts all others off until one of this kind leads. Returns the term before its own."""
        assert self._network is not None
        others = [lane for lane, other in enumerate(self.kinds) if other != kind]
        for lane in others:
            self._network.order(lane, "hold")
        pid, term = self.leader(beyond)
        while self._members[pid].kind != kind:
            beyond = term
            pid, term = self.leader(beyond)
        for lane in others:
            self._network.order(lane, "open")
        self._hit["hold all others"] += 1
        return term - 1

    def _faults(self, kind: str) -> list[str]:
        if self._network is None:
            return [fault for fault in FAULTS[kind] if fault not in BY_NETWORK]
        if self.is_advisory:
            # A closed connection frees its lock at once, before its owner can know: an overlap of
            # milliseconds that this store admits.
            return [fault for fault in FAULTS[kind] if fault not in ("cut", "reset")]
        return FAULTS[kind]

    def hit(self, pid: int, term: int, fault: str) -> None:
        """One fault, and what must come of it."""
        member = self._members[pid]
        at = now_ns()
        if fault in ("kill", "end"):
            self._end(pid, signal.SIGKILL if fault == "kill" else signal.SIGTERM)
        elif fault == "freeze":
            os.kill(pid, signal.SIGSTOP)
        elif fault in BY_NETWORK:
            assert self._network is not None
            self._network.order(member.lane, fault)
        else:
            assert member.process.stdin is not None
            member.process.stdin.write(fault + "\n")
            member.process.stdin.flush()
        self._hit[fault] += 1
        if fault in MAY_PASS:
            self.believes(at)
        else:
            successor, new_term = self.leader(term)
            self._gaps_s.append((self._spans[successor, new_term].begin - at) / 1e9)
        if fault in ("kill", "end"):
            self.start(member.lane)
        elif fault == "freeze":
            os.kill(pid, signal.SIGCONT)
        elif self._network is not None and fault in BY_NETWORK:
            self._network.order(member.lane, "open")
        if fault in SURVIVED - MAY_PASS and member.kind not in ("old", "rust"):
            self.is_over(pid, term)

    def _end(self, pid: int, how: signal.Signals) -> None:
        process = self._members.pop(pid).process
        process.send_signal(how)
        _wait(process)
        self._killed[pid] = now_ns()

    # What they say

    def _look(self) -> None:
        with self.record.open() as lines:
            lines.seek(self._read)
            for line in lines:
                # The last one may be on its way.
                if line.endswith("\n"):
                    self._read += len(line)
                    self._take_in(line.split())

    def _take_in(self, words: list[str]) -> None:
        pid = int(words[0])
        if words[1] == "refused":
            self._refused.add((pid, int(words[2])))
            return
        term, before, after = (int(word) for word in words[1:])
        span = self._spans.setdefault((pid, term), Span(after, after + 1))
        span.end = max(span.end, before)
        self._latest = max(self._latest, before)

    def leader(self, beyond: int = 0) -> tuple[int, int]:
        """Waits for somebody who believes to lead in a term beyond this one."""
        for _ in Looks(self, f"nobody leads beyond term {beyond}"):
            found = [(term, pid) for pid, term in self._spans if pid in self._members]
            term, pid = max(found, default=(0, 0))
            if term > beyond:
                return pid, term
        raise AssertionError("looking never ends so")

    def believes(self, at: int) -> None:
        """Waits for somebody who believes to lead after this instant."""
        for _ in Looks(self, "nobody leads any more"):
            if self._latest > at:
                return

    def is_over(self, pid: int, term: int) -> None:
        """Waits until the fence has stopped a process that goes on under its old term, or until it
        has been elected anew."""
        for _ in Looks(self, f"process {pid} was not stopped in its term {term}"):
            again = any(who == pid and other > term for who, other in self._spans)
            if again or (pid, term) in self._refused:
                return

    # The end

    def finish(self) -> None:
        """Ends all of them, and has all that they did judged."""
        for pid, member in self._members.items():
            member.process.terminate()
            code = _wait(member.process)
            assert code in (0, -signal.SIGTERM), (pid, member.kind, code)
        self._members.clear()
        self._look()
        self.judge()

    def judge(self) -> None:
        """Has the record judged by the checker of the project."""
        events: list[tuple[int, str]] = []
        for (pid, term), span in self._spans.items():
            events.append((span.begin, f"{self.name} {pid} leads {term} {span.end}"))
            events.append((span.end, f"{self.name} {pid} ends"))
        events += [(at, f"{self.name} {pid} killed") for pid, at in self._killed.items()]
        # In an election of their own: their order is that of the data, not of a clock.
        passed = enumerate(writes(self.data, self.name), 1)
        events += [(at, f"{self.name}-writes {pid} wrote {term}") for at, (pid, term) in passed]
        told = "".join(f"{at} {rest}\n" for at, rest in sorted(events, key=lambda it: it[0]))
        judged = subprocess.run(
            [os.environ["TENURE_TEST_JUDGE"]], input=told, capture_output=True, text=True
        )
        assert judged.returncode == 0, judged.stdout + judged.stderr

    def summary(self) -> str:
        """What there is to record of a long run."""
        faults = ", ".join(f"{count} {fault}" for fault, count in sorted(self._hit.items()))
        led = ", ".join(f"{count} {kind}" for kind, count in sorted(self._led.items()))
        p50 = statistics.median(self._gaps_s) if self._gaps_s else 0.0
        longest = max(self._gaps_s, default=0.0)
        return (
            f"{sum(self._hit.values())} faults ({faults}) to leaders ({led}); {self.terms()} terms; "
            f"{len(writes(self.data, self.name))} fenced writes passed, {len(self._refused)} were "
            f"refused; next leader after {p50:.1f} s (p50), {longest:.1f} s (most)"
        )

    def terms(self) -> int:
        return len({term for _, term in self._spans})


class Looks:
    """Reads the record again and again, and fails if that goes on for too long."""

    def __init__(self, fleet: Fleet, otherwise: str) -> None:
        self._fleet, self._otherwise = fleet, otherwise
        self._until = time.monotonic() + PATIENCE_S

    def __iter__(self) -> Looks:
        return self

    def __next__(self) -> None:
        if time.monotonic() > self._until:
            raise AssertionError(f"{self._fleet.name}: {self._otherwise}")
        time.sleep(LOOK_EVERY_S)
        self._fleet._look()


def _wait(process: subprocess.Popen[str]) -> int:
    code = process.wait(PATIENCE_S)
    if process.stdin is not None:
        process.stdin.close()
    return code
