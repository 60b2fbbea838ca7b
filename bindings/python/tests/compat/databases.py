"""A database of its own for each test, on the server that `cargo xtask test` starts."""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# It has no types in some of its versions.
asyncpg: Any = importlib.import_module("asyncpg")

SERVER = os.environ.get("TENURE_TEST_POSTGRES")
TENURE = os.environ.get("TENURE_TEST_COMMAND")
ROOT = Path(__file__).parents[4]
OLD_TABLE = (ROOT / "crates/tenure-postgres/tests/all/common/old.sql").read_text(encoding="utf-8")


async def _on(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


def migrate(url: str) -> None:
    """Upgrades the table in place, as an operator does."""
    assert TENURE, "TENURE_TEST_COMMAND names the command `tenure`"
    subprocess.run([TENURE, "migrate", "--store", url], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="session")
def make_database() -> Iterator[Callable[[bool], str]]:
    """Makes databases: with tenure's functions, or with the old ones alone."""
    server = SERVER
    if not server or not TENURE:
        pytest.skip("needs the variables that `cargo xtask test` sets")
    made: list[str] = []

    def make(is_migrated: bool) -> str:
        name = f"compat_{uuid.uuid4().hex[:12]}"
        asyncio.run(_on(server, f"CREATE DATABASE {name}"))
        made.append(name)
        url = server.rsplit("/", 1)[0] + "/" + name
        asyncio.run(_on(url, OLD_TABLE))
        if is_migrated:
            migrate(url)
        return url

    yield make
    for name in made:
        asyncio.run(_on(server, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="session")
def new_url(make_database: Callable[[bool], str]) -> str:
    return make_database(True)


@pytest.fixture(scope="session")
def old_url(make_database: Callable[[bool], str]) -> str:
    return make_database(False)


@pytest.fixture(params=["new", "old"])
def url(request: pytest.FixtureRequest) -> str:
    """A database with tenure's functions, and one without."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def service() -> str:
    return f"jobs-{uuid.uuid4().hex[:8]}"
