"""Leadership with a term: elect one instance, tell it, take the job away in time.

>>> import asyncio, tempfile, tenure
>>> async def main():
...     url = "sqlite:" + tempfile.mkdtemp() + "/tenure.db"
...     async with tenure.Election("invoices", store=url) as election:
...         async for reign in election.reigns():
...             async with reign:
...                 print("sending invoices as term", reign.term)
...             break
>>> asyncio.run(main())
sending invoices as term 1

``tenure.blocking`` has the same words for programs with threads. Importing this package loads no
native code until a name is used that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tenure._errors import (
    ConfigError,
    CorruptError,
    CrashedError,
    DeniedError,
    Error,
    ForkedError,
    LoopError,
    OnceFailed,
    StaleTerm,
    StoppedError,
    UnavailableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from tenure import blocking, fence
    from tenure._candidate import Candidate
    from tenure._cron import Cron, Run, TickRecord
    from tenure._election import Election
    from tenure._once import OnceResult, OnceRun
    from tenure._reign import Lost, Reign
    from tenure._values import Event, Leader, Message, Posted, Timing

__all__ = [
    "Candidate",
    "ConfigError",
    "CorruptError",
    "CrashedError",
    "Cron",
    "DeniedError",
    "Election",
    "Error",
    "Event",
    "ForkedError",
    "Leader",
    "LoopError",
    "Lost",
    "Message",
    "OnceFailed",
    "OnceResult",
    "OnceRun",
    "Posted",
    "Reign",
    "Run",
    "StaleTerm",
    "StoppedError",
    "TickRecord",
    "Timing",
    "UnavailableError",
    "UnsupportedError",
    "blocking",
    "fence",
]

# Where the names are that are loaded when they are used.
_PLACES = {
    "Candidate": "_candidate",
    "Cron": "_cron",
    "Election": "_election",
    "Event": "_values",
    "Leader": "_values",
    "Lost": "_reign",
    "Message": "_values",
    "OnceResult": "_once",
    "OnceRun": "_once",
    "Posted": "_values",
    "Reign": "_reign",
    "Run": "_cron",
    "TickRecord": "_cron",
    "Timing": "_values",
}
_MODULES = ("blocking", "fence")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tenure.{name}")
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'tenure' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tenure.{place}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
