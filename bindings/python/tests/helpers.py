"""What the tests share: a loop in debug mode, processes, patience."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# Long enough for a machine that is busy; nothing waits so long when all is well.
PATIENCE_S = 60.0


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs it to its end on a loop that tells what is wrong with it."""

    async def bounded() -> T:
        return await asyncio.wait_for(main, PATIENCE_S)

    return asyncio.run(bounded(), debug=True)


async def until(holds: Callable[[], bool]) -> None:
    """Waits until something holds."""
    while not holds():
        await asyncio.sleep(0.005)


def python(script: str, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process of its own, in which every warning is an error."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", script, *args]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ, **more
    )
