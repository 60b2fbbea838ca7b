"""Fences, through every driver: the current term passes, an old one and one that is over do not."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from helpers import run

import tenure
from tenure import fence

POSTGRES = os.environ.get("TENURE_TEST_POSTGRES", "")
REDIS = os.environ.get("TENURE_TEST_REDIS", "")
ROOT = Path(__file__).parents[3]

on_postgres = pytest.mark.skipif(not POSTGRES, reason="needs the server of `cargo xtask test`")
on_redis = pytest.mark.skipif(not REDIS, reason="needs the server of `cargo xtask test`")


@pytest.fixture(scope="module", autouse=True)
def migrated() -> None:
    if POSTGRES:
        command = [os.environ["TENURE_TEST_COMMAND"], "migrate", "--store", POSTGRES]
        subprocess.run(command, check=True, capture_output=True)


@asynccontextmanager
async def leading(url: str) -> AsyncGenerator[tuple[str, int], None]:
    """An election that is led, its name and term."""
    name = f"fence-{uuid.uuid4().hex}"
    async with tenure.Election(name, store=url, ttl=3) as election:
        async for reign in election.reigns():
            async with reign:
                yield name, reign.term
            return


def test_the_texts_are_those_of_the_stores() -> None:
    script = ROOT / "crates/tenure-redis/src/lua/fence.lua"
    assert script.read_text() == fence.FENCE_LUA
    sql = ROOT / "crates/tenure-sqlite/src/sql"
    squeezed = " ".join("".join(path.read_text() for path in sorted(sql.glob("fence*"))).split())
    for text in (fence._SQLITE_TABLE, fence._SQLITE_TRIGGER):
        assert " ".join(text.split()) in squeezed


def test_sqlite3(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    one, two = sqlite3.connect(path), sqlite3.connect(path, timeout=0)
    one.execute("CREATE TABLE t (x)")
    with one:
        fence.check(one, "e", 2)
        one.execute("INSERT INTO t VALUES (1)")
        # Nobody can raise the mark meanwhile.
        with pytest.raises(sqlite3.OperationalError):
            fence.check(two, "e", 3)
    with two:
        fence.raise_mark(two, "e", 3)
    with pytest.raises(tenure.StaleTerm, match="term 2 of 'e' is stale, 3 leads"), one:
        fence.check(one, "e", 2)
        one.execute("INSERT INTO t VALUES (2)")
    with one:
        fence.check(one, "other", 1)
    assert one.execute("SELECT x FROM t").fetchall() == [(1,)]
    one.close()
    two.close()


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="does not know builtins.int"):
        fence.check(7, "e", 1)
    with pytest.raises(TypeError, match="term is '1'"):
        fence.check(sqlite3.connect(":memory:"), "e", "1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="term is 0"):
        fence.check(7, "e", 0)
    with pytest.raises(TypeError, match="does not know builtins.int"):
        run(fence.check_async(7, "e", 1))


@on_postgres
def test_psycopg() -> None:
    psycopg = pytest.importorskip("psycopg")

    async def main() -> None:
        async with leading(POSTGRES) as (name, term):
            with psycopg.connect(POSTGRES) as connection:
                fence.check(connection, name, term)
                connection.rollback()
                with pytest.raises(tenure.StaleTerm):
                    fence.check(connection, name, term + 1)
            with psycopg.connect(POSTGRES, autocommit=True) as connection:
                with pytest.raises(tenure.ConfigError, match="autocommit"):
                    fence.check(connection, name, term)
                with connection.transaction():
                    fence.check(connection, name, term)
            async with await psycopg.AsyncConnection.connect(POSTGRES) as connection:
                await fence.check_async(connection, name, term)
        with psycopg.connect(POSTGRES) as connection, pytest.raises(tenure.StaleTerm):
            fence.check(connection, name, term)

    run(main())


@on_postgres
def test_asyncpg() -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def main() -> None:
        connection = await asyncpg.connect(POSTGRES)
        async with leading(POSTGRES) as (name, term):
            with pytest.raises(tenure.ConfigError, match="autocommit"):
                await fence.check_async(connection, name, term)
            async with connection.transaction():
                await fence.check_async(connection, name, term)
        with pytest.raises(tenure.StaleTerm):
            async with connection.transaction():
                await fence.check_async(connection, name, term)
        await connection.close()

    run(main())


@on_postgres
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_sqlalchemy(driver: str) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
    from sqlalchemy.orm import Session

    url = POSTGRES.replace("postgres://", f"postgresql+{driver}://")

    def blocking(name: str, term: int, stale: bool) -> None:
        engine = sqlalchemy.create_engine(url)
        for make in (engine.connect, lambda: Session(engine)):
            with make() as connection:
                if stale:
                    with pytest.raises(tenure.StaleTerm):
                        fence.check(connection, name, term)
                else:
                    fence.check(connection, name, term)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            with pytest.raises(tenure.ConfigError, match="autocommit"):
                fence.check(connection, name, term)
        engine.dispose()

    async def main() -> None:
        engine = create_async_engine(url)
        async with leading(POSTGRES) as (name, term):
            async with engine.begin() as connection:
                await fence.check_async(connection, name, term)
            async with AsyncSession(engine) as session:
                await fence.check_async(session, name, term)
            if driver == "psycopg":
                await asyncio.to_thread(blocking, name, term, False)
        with pytest.raises(tenure.StaleTerm):
            async with engine.begin() as connection:
                await fence.check_async(connection, name, term)
        if driver == "psycopg":
            await asyncio.to_thread(blocking, name, term, True)
        await engine.dispose()

    run(main())


DJANGO = """
import os, sys, urllib.parse
import django
from django.conf import settings

url, election, term, stale = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "stale"
parts = urllib.parse.urlsplit(url)
postgres = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": parts.path[1:],
    "USER": parts.username,
    "PASSWORD": parts.password,
    "HOST": parts.hostname,
    "PORT": parts.port,
}
lite = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
settings.configure(DATABASES={"default": postgres, "lite": lite}, USE_TZ=True)
django.setup()
from django.db import connections, transaction
import tenure
from tenure import fence

try:
    with fence.atomic(election, term):
        print("inside")
except tenure.StaleTerm:
    assert stale
    print("stale")
with transaction.atomic():
    try:
        with fence.atomic(election, term):
            print("not refused")
    except tenure.ConfigError as error:
        assert "at the top" in str(error)
with fence.atomic("e", 2, using="lite"):
    pass
try:
    with fence.atomic("e", 1, using="lite"):
        print("not refused")
except tenure.StaleTerm:
    print("stale in SQLite")
connections.close_all()
"""


@on_postgres
def test_django() -> None:
    pytest.importorskip("django")

    async def main() -> None:
        # Not as errors: Django itself warns.
        async def django(*args: str) -> str:
            script = ["-c", DJANGO, POSTGRES, *args]
            process = await asyncio.create_subprocess_exec(
                sys.executable, *script, stdout=asyncio.subprocess.PIPE
            )
            said, _ = await process.communicate()
            assert process.returncode == 0
            return said.decode()

        async with leading(POSTGRES) as (name, term):
            assert await django(name, str(term), "current") == "inside\nstale in SQLite\n"
        assert await django(name, str(term), "stale") == "stale\nstale in SQLite\n"

    run(main())


@on_redis
@pytest.mark.parametrize("form", ["{}", "{{shop}}:{}"])
def test_redis(form: str) -> None:
    redis = pytest.importorskip("redis")

    async def main() -> None:
        client = redis.Redis.from_url(REDIS)
        later = redis.asyncio.Redis.from_url(REDIS)
        name, key = form.format(uuid.uuid4().hex), uuid.uuid4().hex
        fenced, fenced_later = (fence.Redis(one, name, 1) for one in (client, later))
        async with tenure.Election(name, store=REDIS, ttl=3) as election:
            async for reign in election.reigns():
                async with reign:
                    fenced = fence.Redis(client, name, reign.term)
                    assert fenced.run("SET", key, 4) == b"OK"
                    with pytest.raises(tenure.StaleTerm):
                        fence.Redis(client, name, reign.term + 1).run("SET", key, 5)
                    fenced_later = fence.Redis(later, name, reign.term)
                    assert await fenced_later.run("INCR", key) == 5
                break
        with pytest.raises(tenure.StaleTerm, match="its lease has ended"):
            fenced.run("SET", key, 6)
        with pytest.raises(tenure.StaleTerm):
            await fenced_later.run("SET", key, 6)
        assert client.get(key) == b"5"
        client.close()
        await later.aclose()

    run(main())
