"""The fence: a late write is refused where the data lives.

No lease can stop a paused process from acting late; a fence can. Check the term first in every
transaction that writes. :class:`tenure.StaleTerm` says that the term is over: roll back and stop.

==================================  ==================================================
psycopg 3, SQLAlchemy, sqlite3      ``check(connection, election, term)``
asyncpg, psycopg, SQLAlchemy async  ``await check_async(connection, election, term)``
Django                              ``with atomic(election, term): ...``
redis-py                            ``Redis(client, election, term).run("SET", "k", 4)``
==================================  ==================================================

None of this needs the native part of the package.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from tenure._errors import ConfigError, StaleTerm

__all__ = ["Redis", "atomic", "check", "check_async", "raise_mark"]

_STALE = "TN001"


def check(connection: Any, election: str, term: int) -> None:
    """Lets the transaction of this connection go on only while the term leads.

    ``connection`` is a psycopg connection, a SQLAlchemy connection or session on PostgreSQL or
    SQLite, or a sqlite3 connection. On PostgreSQL a transaction must be open: in autocommit a fence
    protects nothing. On SQLite one is begun if none is, and the file keeps the highest term.

    >>> import sqlite3
    >>> from tenure import fence
    >>> file = sqlite3.connect(":memory:")
    >>> fence.check(file, "invoices", 42)
    >>> file.commit()
    >>> fence.check(file, "invoices", 41)
    Traceback (most recent call last):
    ...
    tenure._errors.StaleTerm: term 41 of 'invoices' is stale, 42 leads; roll back and stop
    """
    _arguments(election, term)
    family = _family(connection)
    if family == "sqlite3":
        _check_sqlite(connection, election, term)
    elif family == "psycopg":
        _refuse_autocommit(_psycopg_autocommits(connection))
        with _stale(election, term):
            connection.execute(_sql("%s", "%s"), (election, term))
    elif family == "sqlalchemy":
        _check_sqlalchemy(connection, election, term)
    else:
        _unknown(connection, "check")


async def check_async(connection: Any, election: str, term: int) -> None:
    """As :func:`check`, for asyncpg, psycopg's AsyncConnection, and SQLAlchemy's AsyncConnection
    and AsyncSession."""
    _arguments(election, term)
    family = _family(connection)
    if family == "asyncpg":
        _refuse_autocommit(not connection.is_in_transaction())
        with _stale(election, term):
            await connection.execute(_sql("$1", "$2"), election, term)
    elif family == "psycopg":
        _refuse_autocommit(_psycopg_autocommits(connection))
        with _stale(election, term):
            await connection.execute(_sql("%s", "%s"), (election, term))
    elif family == "sqlalchemy" and hasattr(connection, "run_sync"):

        def check_inner(inner: Any) -> None:
            _check_sqlalchemy(inner, election, term)

        await connection.run_sync(check_inner)
    else:
        _unknown(connection, "check_async")


@contextmanager
def atomic(election: str, term: int, using: str | None = None) -> Generator[None, None, None]:
    """Django's ``transaction.atomic``, behind the fence. It must be the outermost one: rolling back
    to a savepoint before it would undo the fence."""
    from django.db import transaction

    _arguments(election, term)
    # It comes without types.
    django: Any = transaction
    connection = django.get_connection(using)
    if connection.in_atomic_block:
        raise ConfigError("the fence belongs at the top: no transaction.atomic may be around it")
    with django.atomic(using=using):
        if connection.vendor == "postgresql":
            with _stale(election, term), connection.cursor() as cursor:
                cursor.execute(_sql("%s", "%s"), (election, term))
        elif connection.vendor == "sqlite":
            connection.ensure_connection()
            _check_sqlite(connection.connection, election, term)
        else:
            raise ConfigError(
                f"there is no fence for Django on {connection.vendor}; keep the highest term "
                "beside the data, as docs/fence.md shows"
            )
        yield


class Redis:
    """One term of one election, to put in front of writes with redis-py. The client must lead to
    the server and the database that elects; ``prefix`` is the one of the store's URL."""

    def __init__(self, client: Any, election: str, term: int, *, prefix: str = "") -> None:
        _arguments(election, term)
        self._client, self._election, self._term = client, election, term
        lease = f"{prefix}{election}"
        tagged = re.search(r"\{[^}]+\}", lease)
        companion = f"{lease}:tenure:own" if tagged else f"{prefix}{{{lease}}}:tenure"
        self._keys = [lease, companion]
        self._script = client.register_script(FENCE_LUA)

    def run(self, *command: Any, keys: Sequence[str] | None = None) -> Any:
        """Runs a command if the term still leads, in one atomic step. ``keys`` are all that it
        touches; without them it is the first argument after the command's name. With an asyncio
        client this is to be awaited."""
        if not command:
            raise TypeError("run is given no command")
        touched = list(command[1:2] if keys is None else keys)
        arguments = {"keys": self._keys + touched, "args": [self._term, *command]}
        if "asyncio" in type(self._client).__module__:
            return self._run_async(arguments)
        with self._stale():
            return self._script(**arguments)

    async def _run_async(self, arguments: dict[str, Any]) -> Any:
        with self._stale():
            return await self._script(**arguments)

    @contextmanager
    def _stale(self) -> Generator[None, None, None]:
        try:
            yield
        except Exception as error:
            said = re.search(r"TENURESTALE (\d+)", str(error))
            if said is None:
                raise
            raise _over(self._election, self._term, int(said[1])) from error


def raise_mark(connection: Any, election: str, term: int) -> None:
    """Raises the mark in a user's SQLite file to this term. A new leader does this before it reads
    anything; :func:`check` does it, too, before it writes."""
    _arguments(election, term)
    _check_sqlite(connection, election, term)


# Inside

# The script of the Redis store: a test compares them.
FENCE_LUA = """\
-- Runs one write if, and only if, the term still leads.
-- KEYS: lease, companion, then every key that the write touches. ARGV: term, then the write.
local holder = redis.call('GET', KEYS[1])
local noted = redis.call('HMGET', KEYS[2], 'holder', 'term', 'ends')
if not holder and noted[3] then
  -- A key that was deleted or evicted: the lease counts up to its noted end.
  local clock = redis.call('TIME')
  if clock[1] * 1000 + math.floor(clock[2] / 1000) <= tonumber(noted[3]) then
    holder = noted[1]
  end
end
if not holder or holder ~= noted[1] or noted[2] ~= ARGV[1] then
  return redis.error_reply('TENURESTALE ' .. (noted[2] or '0'))
end
return redis.call(unpack(ARGV, 2))
"""

# The table of marks of the SQLite store.
_SQLITE_TABLE = """\
CREATE TABLE IF NOT EXISTS tenure_fence (election TEXT PRIMARY KEY, term INTEGER NOT NULL)
"""
_SQLITE_TRIGGER = """\
CREATE TRIGGER IF NOT EXISTS tenure_fence_stale BEFORE UPDATE ON tenure_fence
WHEN new.term < old.term
BEGIN
    SELECT RAISE(ABORT, 'tenure: stale term');
END
"""
_SQLITE_MARK = "SELECT term FROM tenure_fence WHERE election = ?"
_SQLITE_RAISE = """\
INSERT INTO tenure_fence (election, term) VALUES (?, ?)
ON CONFLICT (election) DO UPDATE SET term = excluded.term
"""


def _arguments(election: object, term: object) -> None:
    if not isinstance(election, str):
        raise TypeError(f"election is {election!r}; give its name")
    if isinstance(term, bool) or not isinstance(term, int):
        raise TypeError(f"term is {term!r} ({type(term).__name__}); give the number of the term")
    if not 0 < term < 2**53:
        raise ValueError(f"term is {term}; terms are from 1 to {2**53 - 1}")


def _family(connection: object) -> str:
    for kind in type(connection).__mro__:
        family = kind.__module__.split(".")[0]
        if family in ("sqlite3", "psycopg", "sqlalchemy", "asyncpg"):
            return family
    return ""


def _unknown(connection: object, name: str) -> NoReturn:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise TypeError(f"{name} does not know {kind}; see the table in tenure.fence")


def _sql(first: str, second: str) -> str:
    return f"SELECT tenure_fence({first}::text, {second}::bigint)"


def _refuse_autocommit(autocommits: bool) -> None:
    if autocommits:
        raise ConfigError(
            "no transaction is open, and in autocommit a fence protects nothing; begin one first"
        )


def _psycopg_autocommits(connection: Any) -> bool:
    # 0 is IDLE: outside of any transaction.
    return bool(connection.autocommit) and int(connection.info.transaction_status) == 0


def _check_sqlalchemy(connection: Any, election: str, term: int) -> None:
    from sqlalchemy import text

    inner = connection.connection() if hasattr(connection, "get_bind") else connection
    if inner.dialect.name == "sqlite":
        raw = inner.connection.driver_connection
        if not hasattr(raw, "in_transaction") or _family(raw) != "sqlite3":
            raise ConfigError("the fence for SQLite needs the driver sqlite3; use check on it")
        _check_sqlite(raw, election, term)
        return
    if inner.dialect.name != "postgresql":
        raise ConfigError(f"there is no fence for {inner.dialect.name}; see docs/fence.md")
    raw = inner.connection.dbapi_connection
    told = inner.get_execution_options().get("isolation_level")
    _refuse_autocommit(told == "AUTOCOMMIT" or getattr(raw, "autocommit", False) is True)
    statement = text("SELECT tenure_fence(CAST(:election AS text), CAST(:term AS bigint))")
    with _stale(election, term):
        inner.execute(statement, {"election": election, "term": term})


def _check_sqlite(connection: Any, election: str, term: int) -> None:
    # At once for writing: nobody can raise the mark between the check and the write.
    if not connection.in_transaction:
        connection.execute("BEGIN IMMEDIATE")
    connection.execute(_SQLITE_TABLE)
    connection.execute(_SQLITE_TRIGGER)
    found = connection.execute(_SQLITE_MARK, (election,)).fetchone()
    if found is not None and found[0] > term:
        raise _over(election, term, found[0])
    if found is None or found[0] < term:
        connection.execute(_SQLITE_RAISE, (election, term))


def _over(election: str, term: int, latest: int) -> StaleTerm:
    if latest > term:
        why = f"{latest} leads; roll back and stop"
    else:
        why = "its lease has ended; stop"
    return StaleTerm(f"term {term} of {election!r} is stale, {why}")


@contextmanager
def _stale(election: str, term: int) -> Generator[None, None, None]:
    """Knows the refusal of the fence, however the driver wraps it."""
    try:
        yield
    except Exception as error:
        inner: Any = error
        while inner is not None:
            if _STALE in (getattr(inner, "sqlstate", None), getattr(inner, "pgcode", None)):
                message = f"term {term} of {election!r} is stale; roll back and stop"
                raise StaleTerm(message) from error
            inner = getattr(inner, "orig", None) or inner.__cause__
        raise
