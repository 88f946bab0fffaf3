"""Metrics of the service, for Prometheus."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from tuner.api.view import Watcher

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of prometheus_client: the folder in which worker processes share their counts."""
_BUCKETS_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Metrics:
    """Metrics of one app, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._lookups = Counter("tuner_lookups", "Lookups, by op and match.", ("op", "match"), registry=self._registry)
        self._latency = Histogram(
            "tuner_request_seconds",
            "Seconds from the request's head to the reply's last byte, by path.",
            ("path",),
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self._requests = Counter(
            "tuner_requests", "Requests, by path and status.", ("path", "status"), registry=self._registry
        )
        self.store_errors = Counter(
            "tuner_store_errors", "Times the store could not be read or written.", registry=self._registry
        )
        self.unlisted = Counter(
            "tuner_misses_unlisted",
            "Missed queries that are not listed, since too many differ.",
            registry=self._registry,
        )
        self._answers = Gauge(
            "tuner_answers", "Answers in the view.", registry=self._registry, multiprocess_mode="livemin"
        )
        self._snapshot = Gauge(
            "tuner_snapshot_id", "Highest answer id seen.", registry=self._registry, multiprocess_mode="livemin"
        )
        self._age = Gauge(
            "tuner_view_age_seconds",
            "Seconds since the view was last known to be up to date; -1: never read.",
            registry=self._registry,
            multiprocess_mode="livemax",
        )
        self._unreadable = Gauge(
            "tuner_unreadable_rows",
            "Rows of the store that are left out, since they cannot be read, by table.",
            ("table",),
            registry=self._registry,
            multiprocess_mode="livemax",
        )
        self._by_match: dict[tuple[str, str], Counter] = {}
        self._by_path: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def lookup(self, op: str, match: str) -> None:
        """Count a lookup of `op` by its match."""
        counter = self._by_match.get((op, match))
        if counter is None:  # labels are slow to look up
            counter = self._by_match[op, match] = self._lookups.labels(op, match)
        counter.inc()

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request. `path` is one of a small set, since each new label is kept."""
        found = self._by_path.get((path, status))
        if found is None:
            found = self._by_path[path, status] = (self._requests.labels(path, status), self._latency.labels(path))
        found[0].inc()
        found[1].observe(seconds)

    def watch(self, watcher: Watcher) -> None:
        """Set the gauges from the state of the view and of its store."""
        self._answers.set(watcher.view.answers)
        self._snapshot.set(watcher.view.tip.answer)
        self._age.set(-1 if watcher.age_s is None else watcher.age_s)
        for table, count in watcher.unreadable.items():
            self._unreadable.labels(table).set(count)

    def text(self) -> bytes:
        """Return all metrics as text, summed over the worker processes of this service."""
        if os.environ.get(MULTIPROCESS) is None:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
