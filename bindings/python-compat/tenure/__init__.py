"""The drop-ins of tenure, without its native part: see ``tenure.compat``."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"tenure.{name} is in the native package, and there is no binary for this platform; this "
        "installation has tenure.compat alone"
    )
