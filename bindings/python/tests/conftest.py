"""A store for each test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of one's own, in a file."""
    return f"sqlite:{tmp_path}/tenure.db"
