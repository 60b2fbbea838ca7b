"""Each kind of database object, on a real server, with tenure's functions and without."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from databases import asyncpg, make_database, new_url, old_url, service, url
from kinds import KINDS, opened
from tenure.compat.leader_election import LeaderElection, LeaderElectionConfig


__all__ = ["make_database", "new_url", "old_url", "service", "url"]


async def until(holds: Any, limit: float = 15.0) -> None:
    by = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < by, "nothing came of it"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_one_leads_and_hands_over(kind: str, url: str, service: str) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            dbs = [await stack.enter_async_context(opened(kind, url)) for _ in range(2)]
            first, second = (
                LeaderElection(db, LeaderElectionConfig(service, "same-id", 0.9, 3)) for db in dbs
            )
            await first.start()
            # On a busy machine the first attempt may be too slow to count.
            await until(lambda: first.is_leader)
            await second.start()
            assert (first.is_leader, second.is_leader) == (True, False)
            await first.stop()
            assert not first.is_leader
            await until(lambda: second.is_leader)
            await first.start()
            assert not first.is_leader, "it starts again, and somebody else leads"
            # A lease is renewed.
            if kind in ("asyncpg pool", "psycopg connection"):
                await asyncio.sleep(3.2)
            assert (first.is_leader, second.is_leader) == (False, True)
            await second.stop()
            await first.stop()

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_terms_rise_where_the_database_issues_them(kind: str, new_url: str, service: str) -> None:
    async def main() -> None:
        async with opened(kind, new_url) as db:
            election = LeaderElection(db, LeaderElectionConfig(service, "a", 0.9, 3))
            terms: list[Any] = []
            for _ in range(3):
                await election.start()
                await until(lambda: election.term is not None)
                terms.append(election.term)
                await election.stop()
            assert terms == sorted(set(terms)), "an attempt that was too slow to count has one, too"
            assert election.term is None

    asyncio.run(main())


def test_without_tenures_functions_there_is_one_warning_with_the_command(
    old_url: str, service: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with opened("asyncpg pool", old_url) as db:
            election = LeaderElection(db, LeaderElectionConfig(service, "a", 0.9, 3))
            await election.start()
            await until(lambda: election.is_leader)
            assert election.term is None
            await asyncio.sleep(3.2)
            assert election.is_leader
            await election.stop()

    with caplog.at_level(logging.INFO, "tenure.compat"):
        asyncio.run(main())
    warnings = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
    assert sum("tenure migrate --store" in words for words in warnings) == 1


def test_a_role_that_may_not_call_them_falls_back(new_url: str, service: str) -> None:
    async def main() -> None:
        owner = await asyncpg.connect(new_url)
        await owner.execute("DROP ROLE IF EXISTS compat_app")
        await owner.execute("CREATE ROLE compat_app LOGIN PASSWORD 'compat'")
        rights = "SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public"
        await owner.execute(f"GRANT {rights} TO compat_app")
        url = new_url.replace("postgres:tenure-test@", "compat_app:compat@")
        async with opened("asyncpg pool", url) as db:
            election = LeaderElection(db, LeaderElectionConfig(service, "a", 0.9, 3))
            await election.start()
            await until(lambda: election.is_leader)
            assert election.term is None
            await election.stop()
        await owner.execute("DROP OWNED BY compat_app; DROP ROLE compat_app")
        await owner.close()

    asyncio.run(main())


def test_a_connection_inside_a_transaction_is_not_asked(new_url: str, service: str) -> None:
    import psycopg

    async def main() -> None:
        connection = await asyncpg.connect(new_url)
        transaction = connection.transaction()
        await transaction.start()
        election = LeaderElection(connection, LeaderElectionConfig(service, "a", 0.9, 3))
        await election.start()
        assert not election.is_leader
        await transaction.rollback()
        await until(lambda: election.is_leader)
        await election.stop()
        await connection.close()

        plain = await psycopg.AsyncConnection.connect(new_url)
        election = LeaderElection(plain, LeaderElectionConfig(service, "a", 0.9, 3))
        await election.start()
        assert not election.is_leader
        await plain.set_autocommit(True)
        await until(lambda: election.is_leader)
        await election.stop()
        await plain.close()

    asyncio.run(main())


def test_fifty_start_at_once_and_one_leads(new_url: str, service: str) -> None:
    async def main() -> None:
        async with opened("asyncpg pool", new_url) as db:
            config = LeaderElectionConfig(service, "same", 3.0, 10)
            elections = [LeaderElection(db, config) for _ in range(50)]
            await asyncio.gather(*(one.start() for one in elections))
            await until(lambda: any(one.is_leader for one in elections))
            assert sum(one.is_leader for one in elections) == 1
            await asyncio.gather(*(one.stop() for one in elections))
            assert not any(one.is_leader for one in elections)

    asyncio.run(main())
