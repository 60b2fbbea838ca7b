"""A fleet of processes that take part in one election, and what an outsider can say about them.

Each process appends to one file whenever it asks whether it leads: the time before and after the
question, on a clock that all processes of the host share and that counts suspend.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from helpers import PATIENCE_S

WORKER = Path(__file__).parent / "worker.py"
TTL_S = 1.5


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Fleet:
    """Processes of one election, and their record."""

    def __init__(self, url: str, name: str, record: Path, face: str) -> None:
        self.url, self.name, self.record, self.face = url, name, record, face
        record.touch()
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._killed: dict[int, int] = {}

    def start(self) -> int:
        command = [sys.executable, "-X", "dev", "-W", "error", str(WORKER)]
        command += [self.url, self.name, str(self.record), self.face, str(TTL_S)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        self._processes[process.pid] = process
        return process.pid

    def tell(self, pid: int, word: str) -> None:
        """Has a process do something wrong."""
        stdin = self._processes[pid].stdin
        assert stdin is not None
        stdin.write(word + "\n")
        stdin.flush()

    def signal(self, pid: int, number: signal.Signals) -> None:
        os.kill(pid, number)
        if number == signal.SIGKILL:
            _wait(self._processes.pop(pid))
            self._killed[pid] = now_ns()

    def lines(self) -> list[tuple[int, int, int, int]]:
        """Each belief: process, term, and the instants around it."""
        beliefs = []
        for line in self.record.read_text().splitlines():
            pid, term, before, after = (int(word) for word in line.split())
            beliefs.append((pid, term, before, after))
        return beliefs

    def leader(self, beyond: int = 0) -> tuple[int, int]:
        """Waits for somebody who believes to lead in a term beyond this one."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for pid, term, _, _ in self.lines():
                if term > beyond and pid in self._processes:
                    return pid, term
            time.sleep(0.01)
        raise AssertionError(f"nobody leads beyond term {beyond}")

    def end(self) -> None:
        for pid, process in list(self._processes.items()):
            os.kill(pid, signal.SIGCONT)
            process.terminate()
        for pid, process in self._processes.items():
            code = _wait(process)
            assert code in (0, -signal.SIGTERM), (pid, code)
        self._processes.clear()

    def kill(self) -> None:
        """Whatever is left of it, for a test that failed."""
        for process in self._processes.values():
            process.kill()
            _wait(process)

    def judge(self) -> int:
        """Has the record judged by the checker of the project. Returns how many terms there were.

        A process believed from the end of its first question of a term to the beginning of its
        last, for certain."""
        spans: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for pid, term, before, after in self.lines():
            spans[pid, term].append((before, after))
        events = []
        for (pid, term), questions in spans.items():
            begin = questions[0][1]
            end = max(questions[-1][0], begin + 1)
            events.append((begin, f"{pid} leads {term} {end}"))
            events += [(after, f"{pid} trusts {term}") for _, after in questions[1:-1]]
            events.append((end, f"{pid} ends"))
        events += [(at, f"{pid} killed") for pid, at in self._killed.items()]
        told = "".join(f"{at} {self.name} {rest}\n" for at, rest in sorted(events, key=_at))
        judged = subprocess.run(
            [os.environ["TENURE_TEST_JUDGE"]], input=told, capture_output=True, text=True
        )
        assert judged.returncode == 0, judged.stdout + judged.stderr
        return len({term for _, term in spans})


def _at(event: tuple[int, str]) -> int:
    return event[0]


def _wait(process: subprocess.Popen[str]) -> int:
    if process.stdin is not None:
        process.stdin.close()
    return process.wait(PATIENCE_S)
