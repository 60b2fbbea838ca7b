"""Jobs, metrics, logs."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from helpers import run, until

import tenure
from tenure._cron import next_ticks


def test_a_job_fires_on_the_leader_and_is_in_the_ledger(url: str) -> None:
    async def main() -> None:
        seen: list[tenure.Run] = []
        elections = [tenure.Election("jobs", store=url, ttl=3) for _ in range(2)]
        crons = [tenure.Cron(election) for election in elections]
        for cron in crons:

            @cron.job("* * * * * *", name="each second")
            async def each_second(run: tenure.Run) -> None:
                assert run.is_current and run.attempt == 1 and not run.manual
                seen.append(run)

            @cron.job("@yearly", tz="Europe/Berlin", missed="run-once", timeout=60)
            def yearly(run: tenure.Run) -> None:
                seen.append(run)
                raise KeyError("broken")

        running = [asyncio.ensure_future(cron.run()) for cron in crons]
        await until(lambda: len(seen) >= 3)
        await crons[0].trigger("yearly")
        await until(lambda: any(run.job == "yearly" for run in seen))
        history = await crons[1].history("each second", limit=10)
        assert {record.state for record in history} <= {"ok", "claimed", "started", "skipped"}
        failed: list[Any] = []
        while not failed or failed[0].state != "failed":
            failed = await crons[1].history("yearly")
        await asyncio.gather(*(election.stop() for election in elections))
        await asyncio.gather(*running)
        ticks = [run.scheduled_unix_ms for run in seen if run.job == "each second"]
        # Each tick once, whichever instance led.
        assert len(ticks) == len(set(ticks)) and sorted(ticks) == ticks

    run(main())


def test_a_job_is_cancelled_when_leadership_ends(url: str) -> None:
    async def main() -> None:
        seen: list[str] = []
        election = tenure.Election("jobs", store=url, ttl=3)
        cron = tenure.Cron(election)

        @cron.job("* * * * * *")
        async def forever(run: tenure.Run) -> None:
            seen.append("begins")
            try:
                await asyncio.sleep(3600)
            finally:
                seen.append("ends")

        running = asyncio.ensure_future(cron.run())
        await until(lambda: "begins" in seen)
        await election.stop()
        await running
        assert seen[-1] == "ends"

    run(main())


def test_bad_jobs_are_refused(url: str) -> None:
    cron = tenure.Cron(tenure.Election("jobs", store=url))
    for wrong in (
        {"schedule": "61 * * * *"},
        {"schedule": "@daily", "tz": "Europe/Atlantis"},
        {"schedule": "@daily", "missed": "maybe"},
        {"schedule": "@daily", "delivery": "twice"},
    ):
        arguments: dict[str, Any] = dict(wrong)
        with pytest.raises(ValueError):
            cron.job(**arguments)(print)
    with pytest.raises(TypeError, match="timeout is 'x'"):
        cron.job("@daily", timeout="x")(print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="election is 7"):
        tenure.Cron(7)  # type: ignore[arg-type]
    assert len(next_ticks("*/5 * * * *", count=3)) == 3


def test_metrics_and_logs(url: str, caplog: pytest.LogCaptureFixture) -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    import tenure.prometheus

    caplog.set_level(logging.INFO, logger="tenure")
    registry = prometheus_client.CollectorRegistry()
    registry.register(tenure.prometheus.Collector())

    def sample(name: str) -> float:
        value = registry.get_sample_value(name, {"key_class": "counted"})
        return float(value or 0)

    async def main() -> None:
        async with tenure.Election("counted", store=url, ttl=0.9) as election:
            await until(lambda: sample("leader_renewals_total") >= 2)
            assert sample("leader_acquired_total") == 1 and sample("leader_is_leader") == 1
            await election.resign()
            await until(lambda: sample("leader_lost_total") == 1)
            assert sample("leader_renewal_failures_total") == 0
            await until(lambda: "elected election=counted" in caplog.text)

    run(main())
    assert any(record.levelno == logging.INFO for record in caplog.records)
