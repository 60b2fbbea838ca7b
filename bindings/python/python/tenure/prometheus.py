"""What tenure counts, for ``prometheus_client``.

>>> import prometheus_client, tenure.prometheus
>>> registry = prometheus_client.CollectorRegistry()
>>> registry.register(tenure.prometheus.Collector())
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector as _Collector

from tenure import _native


class Collector(_Collector):
    """All that this process has counted: ``leader_acquired_total``, ``leader_lost_total``,
    ``leader_renewals_total``, ``leader_renewal_failures_total`` and the rest."""

    def collect(self) -> Iterable[Metric]:
        return text_string_to_metric_families(_native.metrics_snapshot())

    def describe(self) -> Iterable[Metric]:
        # What there is depends on what has happened so far.
        return []
