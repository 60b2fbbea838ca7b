"""Every kind of database object that the drop-in takes."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

# It has no types in some of its versions.
asyncpg: Any = importlib.import_module("asyncpg")

KINDS = [
    "asyncpg pool", "asyncpg connection", "psycopg pool", "psycopg connection",
    "sqlalchemy asyncpg", "sqlalchemy psycopg", "own object",
]  # fmt: skip


class Own:
    """An object of the program's own, whose `execute` returns rows."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool

    async def execute(self, sql: str, *args: Any) -> Any:
        return await self.pool.fetch(sql, *args)


@asynccontextmanager
async def opened(kind: str, url: str) -> AsyncIterator[Any]:
    if kind in ("asyncpg pool", "own object"):
        async with asyncpg.create_pool(url, min_size=1, max_size=3) as pool:
            yield pool if kind == "asyncpg pool" else Own(pool)
    elif kind == "asyncpg connection":
        connection = await asyncpg.connect(url)
        try:
            yield connection
        finally:
            await connection.close()
    elif kind == "psycopg pool":
        from psycopg_pool import AsyncConnectionPool

        async with AsyncConnectionPool(url, min_size=1, max_size=3, open=False) as pool:
            yield pool
    elif kind == "psycopg connection":
        import psycopg

        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            yield connection
    else:
        from sqlalchemy.ext.asyncio import create_async_engine

        driver = kind.split()[1]
        engine = create_async_engine(url.replace("postgres://", f"postgresql+{driver}://"))
        try:
            yield engine
        finally:
            await engine.dispose()
