"""The questions of an engine, asked through whatever database object the program has.

The object is used itself. No URL and no password are ever derived from it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

log = logging.getLogger("tenure.compat")

# What an answer is to the engine: granted(term), refused(remaining) or unknown(None).
Answer = tuple[str, Any]
# Runs one statement with $1, $2, ... and returns its first row as a tuple, or None if there is none.
Ask = Callable[[str, tuple[Any, ...]], Awaitable["tuple[Any, ...] | None"]]

TRY_LEAD = "SELECT granted, term, remaining_ms FROM tenure_try_lead($1, $2, $3, $4, $5)"
RENEW = "SELECT granted, term, remaining_ms FROM tenure_renew($1, $2, $3, $4)"
RELEASE = "SELECT tenure_release($1, $2, $3, $4)"
OLD_TRY = "SELECT try_become_leader($1, $2, $3)"
OLD_BEAT = "SELECT leader_heartbeat($1, $2)"
OLD_STEP_DOWN = "SELECT step_down($1, $2)"

MISSING = """\
this database has no tenure_try_lead: falling back to try_become_leader, leader_heartbeat and \
step_down, without a term; run `tenure migrate --store URL` to upgrade the table in place"""


DENIED = """\
this role may not call tenure_try_lead: falling back to try_become_leader, leader_heartbeat and \
step_down, without a term; grant it EXECUTE on tenure_try_lead, tenure_renew and tenure_release"""


class Busy(Exception):
    """The connection can't be asked at this moment."""


class Database:
    """One election in one database, for one incarnation of one candidate."""

    def __init__(
        self, db: Any, service: str, candidate: str, ttl_ms: float, told: set[str]
    ) -> None:
        self.service, self.candidate, self.ttl_ms = service, candidate, ttl_ms
        # Warnings that were given before.
        self._told = told
        self.is_old = False
        self._ask = recognise(db)
        # The old functions issue no terms; these are only told apart in this process.
        self._local_term = 0

    async def acquire(self, seq: int, above: int) -> Answer:
        if not self.is_old:
            args = (self.service, self.candidate, math.ceil(self.ttl_ms), above, seq)
            try:
                row = await self._ask(TRY_LEAD, args)
            except Exception as error:
                why = MISSING if lacks_function(error, "tenure_try_lead") else None
                why = why or (DENIED if says(error, "42501") else None)
                if why is None:
                    raise
            else:
                # A stand-in that knows the old functions only answers with a bare yes or no.
                if row is None or len(row) != 1 or not isinstance(row[0], bool):
                    return lease(row, TRY_LEAD)
                why = MISSING
            self.is_old = True
            if why not in self._told:
                self._told.add(why)
                log.warning(why)
        timeout = max(math.ceil(self.ttl_ms / 1000), 1)
        if await self._yes(OLD_TRY, timeout):
            self._local_term += 1
            return ("granted", max(self._local_term, above + 1))
        return ("refused", None)

    async def renew(self, term: int) -> Answer:
        if self.is_old:
            return ("granted", term) if await self._yes(OLD_BEAT) else ("refused", None)
        args = (self.service, self.candidate, term, math.ceil(self.ttl_ms))
        return lease(await self._ask(RENEW, args), RENEW)

    async def release(self, term: int, seq: int) -> Answer:
        if self.is_old:
            return ("granted" if await self._yes(OLD_STEP_DOWN) else "refused", None)
        args = (self.service, self.candidate, term or None, seq)
        try:
            row = await self._ask(RELEASE, args)
        except Exception as error:
            if not lacks_function(error, "tenure_release"):
                raise
            # Somebody removed them since. What was granted runs out.
            return ("refused", None)
        return ("granted" if boolean(row, RELEASE) else "refused", None)

    async def _yes(self, sql: str, *more: Any) -> bool:
        return boolean(await self._ask(sql, (self.service, self.candidate, *more)), sql)


def lease(row: tuple[Any, ...] | None, sql: str) -> Answer:
    """What a row of tenure's functions means."""
    granted = boolean(row, sql)
    assert row is not None
    if not granted:
        remaining = row[2] if len(row) > 2 else None
        return ("refused", None if remaining is None else float(remaining))
    if len(row) < 2 or not isinstance(row[1], int):
        raise TypeError(f"{sql!r} granted without a term: {row!r}")
    return ("granted", row[1])


def boolean(row: tuple[Any, ...] | None, sql: str) -> bool:
    """The first column, if it is a yes or a no."""
    if not row or not isinstance(row[0], bool):
        raise TypeError(f"{sql!r} must return a row that begins with a bool, not {row!r}")
    return row[0]


def lacks_function(error: BaseException, name: str) -> bool:
    """Whether the server says that it has no such function."""
    text = " ".join(str(one) for one in causes(error))
    return says(error, "42883") or (name in text and "does not exist" in text)


def says(error: BaseException, sqlstate: str) -> bool:
    """Whether a server's answer with this code is behind an error."""
    fields = ("sqlstate", "pgcode", "code")
    return any(
        getattr(one, field, None) == sqlstate for one in causes(error) for field in fields
    )


def causes(error: BaseException) -> list[BaseException]:
    """An error and what it was made of, as each library keeps it."""
    found: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if isinstance(one, BaseException) and one not in found:
            found.append(one)
            todo += [getattr(one, "orig", None), one.__cause__, one.__context__]
    return found


def recognise(db: Any) -> Ask:
    """How to ask this object. By the names of its types: nothing is imported for it."""
    names = {f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in type(db).__mro__}
    if "asyncpg.Pool" in names or "asyncpg.Connection" in names:
        return _asyncpg(db)
    if "asyncpg.PoolConnectionProxy" in names:
        return _asyncpg(db)
    if "psycopg_pool.AsyncConnectionPool" in names:
        return _psycopg_pool(db)
    if "psycopg.AsyncConnection" in names:
        return _psycopg(db)
    if "sqlalchemy.AsyncEngine" in names:
        return _sqlalchemy(db)
    for name, instead in {
        "psycopg.Connection": "psycopg.AsyncConnection with autocommit, or an AsyncConnectionPool",
        "psycopg_pool.ConnectionPool": "psycopg_pool.AsyncConnectionPool",
        "sqlalchemy.Engine": "an engine of sqlalchemy.ext.asyncio.create_async_engine",
        "sqlalchemy.AsyncConnection": "the AsyncEngine itself",
        "sqlalchemy.AsyncSession": "the AsyncEngine itself",
        "sqlalchemy.Connection": "an engine of sqlalchemy.ext.asyncio.create_async_engine",
        "sqlalchemy.Session": "an engine of sqlalchemy.ext.asyncio.create_async_engine",
    }.items():
        if name in names:
            raise TypeError(f"db is a {name}, which can't be used here; hand in {instead}")
    if callable(getattr(db, "execute", None)):
        return _other(db)
    raise TypeError(f"db must have a method `execute`, and {type(db).__name__} has none")


def _asyncpg(db: Any) -> Ask:
    """A pool or a connection. `execute` returns a status there, such as "SELECT 1"."""

    async def ask(sql: str, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        in_transaction = getattr(db, "is_in_transaction", None)
        if in_transaction is not None and in_transaction():
            raise Busy("the asyncpg connection is inside a transaction; hand in a pool")
        row = await db.fetchrow(sql, *args)
        return None if row is None else tuple(row)

    return ask


def _psycopg_pool(pool: Any) -> Ask:
    async def ask(sql: str, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        # Leaving the block commits, so that others see what was granted.
        async with pool.connection() as connection:
            return await _psycopg_row(connection, sql, args)

    return ask


def _psycopg(connection: Any) -> Ask:
    async def ask(sql: str, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not connection.autocommit:
            raise Busy(
                "the psycopg connection is not in autocommit, so that others would not see what "
                "was granted; call `await connection.set_autocommit(True)`, or hand in a pool"
            )
        if connection.info.transaction_status.name != "IDLE":
            raise Busy("the psycopg connection is busy or inside a transaction; hand in a pool")
        return await _psycopg_row(connection, sql, args)

    return ask


async def _psycopg_row(
    connection: Any, sql: str, args: tuple[Any, ...]
) -> tuple[Any, ...] | None:
    cursor = await connection.execute(_numbered(sql, len(args), "%s"), args, prepare=False)
    row = await cursor.fetchone()
    return None if row is None else _columns(row)


def _sqlalchemy(engine: Any) -> Ask:
    async def ask(sql: str, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        # Only who has such an engine gets here, so the package is there.
        from sqlalchemy import text

        names = [f"a{index}" for index in range(len(args))]
        for index in range(len(args), 0, -1):
            sql = sql.replace(f"${index}", f"CAST(:a{index - 1} AS {_type(args[index - 1])})")
        async with engine.begin() as connection:
            row = (await connection.execute(text(sql), dict(zip(names, args, strict=True)))).first()
        return None if row is None else tuple(row)

    return ask


def _type(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    return "integer" if value is None or abs(value) < 2**31 else "bigint"


def _other(db: Any) -> Ask:
    """An object of the program's own, as the old class took it: `execute` returns rows."""

    async def ask(sql: str, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        rows = db.execute(sql, *args)
        if hasattr(rows, "__await__"):
            rows = await rows
        if rows is None or isinstance(rows, (str, bytes, Mapping)) or not _is_list(rows):
            raise TypeError(
                f"db.execute must return the rows of {sql!r}, and it returned {rows!r}; hand in a "
                "pool of asyncpg or psycopg, a SQLAlchemy async engine, or an object whose execute "
                "returns rows"
            )
        return _columns(rows[0]) if len(rows) > 0 else None

    return ask


def _is_list(rows: Any) -> bool:
    return isinstance(rows, Sequence) or (hasattr(rows, "__getitem__") and hasattr(rows, "__len__"))


def _columns(row: Any) -> tuple[Any, ...]:
    if isinstance(row, Mapping):
        return tuple(cast("Mapping[str, Any]", row).values())
    if isinstance(row, (bool, int, float, str)):
        return (row,)
    return tuple(row)


def _numbered(sql: str, count: int, mark: str) -> str:
    """$1, $2, ... in order, written as another paramstyle wants them."""
    for index in range(count, 0, -1):
        sql = sql.replace(f"${index}", mark)
    return sql
