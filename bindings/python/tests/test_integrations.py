"""Against the real packages: FastAPI, APScheduler, Celery beat, Django, a plain script."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import PATIENCE_S

EXAMPLES = Path(__file__).parents[1] / "examples"
LONG = bool(os.environ.get("TENURE_TEST_LONG"))


class Program:
    """A process whose lines are read as they come."""

    def __init__(self, *command: str, **variables: str) -> None:
        environment = {**os.environ, **variables, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, text=True, env=environment
        )

    def read(self, wanted: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if wanted in line:
                return line.strip()
        raise AssertionError(f"it ended without {wanted!r}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        assert self.process.stdout is not None
        self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(PATIENCE_S)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_plain_script_hands_over_when_it_is_told_to_end(url: str) -> None:
    script = str(EXAMPLES / "plain_script.py")
    one = Program(script, url)
    assert one.read("sending") == "sending invoices as term 1"
    two = Program(script, url)
    assert one.end() == 0
    assert two.read("sending") == "sending invoices as term 2"
    assert two.end() == 0


def test_apscheduler_runs_on_the_leader_alone(url: str) -> None:
    pytest.importorskip("apscheduler")
    script = str(EXAMPLES / "apscheduler_jobs.py")
    one = Program(script, url)
    assert one.read("report") == "report 1"
    two = Program(script, url)
    assert one.read("report") == "report 1"
    one.end(signal.SIGKILL)
    # Not one line before the other was dead: it begins with its own term.
    assert two.read("report") == "report 2"
    two.end(signal.SIGKILL)


def test_django_command(url: str) -> None:
    pytest.importorskip("django")
    one = Program(str(EXAMPLES / "django_command.py"), url, "--count", "3")
    assert one.read("drained") == "drained as term 1"
    assert one.process.wait(PATIENCE_S) == 0
    two = Program(str(EXAMPLES / "django_command.py"), url, "--count", "1")
    assert two.read("drained") == "drained as term 2"
    for program in (one, two):
        program.process.wait(PATIENCE_S)
        assert program.process.stdout is not None
        program.process.stdout.close()


def test_fastapi_lifespan(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    monkeypatch.setenv("TENURE_STORE", url)
    script = """
import sys, warnings
sys.path.insert(0, sys.argv[1])
import fastapi_app
from fastapi.testclient import TestClient

for term in (1, 2):
    with TestClient(fastapi_app.app) as client:
        answer = client.get("/leader").json()
        assert answer["leader"] == answer["me"] is not None, answer
        while term not in fastapi_app.sent:
            pass
    assert client
print("ok")
"""
    ended = subprocess.run(
        [sys.executable, "-c", script, str(EXAMPLES)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.stdout == "ok\n", ended.stderr


def test_celery_beat_hands_over_at_once(url: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("celery") is None:
        pytest.skip("needs celery")
    places = [tmp_path / "one", tmp_path / "two"]
    beats: list[Any] = []
    for place in places:
        place.mkdir()
        arguments = ["-m", "celery", "-A", "beat_app", "beat", "-l", "error", "--pidfile="]
        variables = {"BEAT_DIRECTORY": str(place), "TENURE_STORE": url}
        python_path = f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        beats.append(Program(*arguments, **variables, PYTHONPATH=python_path))
        if place is places[0]:
            until(lambda: len(list(places[0].glob("*.msg"))) >= 2)
    # The second one follows: it sends nothing while the first does.
    sent = len(list(places[0].glob("*.msg")))
    until(lambda: len(list(places[0].glob("*.msg"))) >= sent + 2)
    assert not list(places[1].glob("*.msg"))
    assert beats[0].end() == 0
    ended = time.monotonic()
    until(lambda: bool(list(places[1].glob("*.msg"))))
    # Less than the lease: it was given back, and the follower was woken.
    assert time.monotonic() - ended < 5.0
    assert beats[1].end() == 0
