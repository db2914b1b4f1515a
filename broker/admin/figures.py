"""The figures of one process for its metrics: what it is, how it fares, what it counted. Queues are not among
them.

Nothing is counted for them on the way of a message. They are plain values: another worker may ask for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import accumulate
from typing import Final, TypeAlias

from broker.admin.node import Node
from broker.engine.client import ShardClient
from broker.engine.commit_stats import BOUNDS_S
from broker.vhosts.hub import Hub
from config import limits

Sample: TypeAlias = tuple[str, Mapping[str, str], float]
"""What is appended to the name of its metric, its labels, its value."""

Figure: TypeAlias = tuple[str, str, str, list[Sample]]
"""A metric with its samples: its name, what it is, its type."""

_Single: TypeAlias = tuple[str, str, float]
_COUNTED: Final = ("control_refused", "late_settles", "events_published", "events_dropped")
_QUOTAS: Final = {
    "most": "What a virtual host or user may have; 0: as much as there is room for.",
    "used": "What it has of that; 0 of what flows.",
    "refused_total": "How often something was refused for that, or had to wait.",
}
_DROPPED: Final = {
    "dropped_session_expired": "session_expired",
    "dropped_session_full": "session_full",
    "dropped_slow_consumer": "slow_consumer",
    "dropped_too_large": "too_large",
    "publishes_refused": "refused",
    "publishes_unrouted": "unrouted",
}


class Figures:
    """The figures of this process."""

    def __init__(self, hub: Hub, node: Node) -> None:
        self._access = hub.access
        self._client = hub.client
        self._node = node

    def all(self) -> list[Figure]:
        """Return them as they are now."""
        return [
            *self._of_node(),
            *self._dropped(),
            *_of_commits(self._client),
            *self._of_storage(),
            *_of_quotas(self._client),
        ]

    def _of_node(self) -> Iterator[Figure]:
        node, lag = self._node.view(), self._node.lag()
        labels = {"version": node.version, "storage": node.storage, "python": node.python}
        yield figure("info", "What runs here.", [("", labels, 1)])
        access = self._access
        counters = asdict(self._node.own_counters())
        metrics: list[_Single] = [
            ("uptime_seconds", "How long the broker runs.", node.uptime_ms / 1000),
            ("memory_resident_bytes", "Memory of the process in RAM.", node.memory_bytes),
            ("cpu_seconds_total", "Processor time the process took.", node.cpu_seconds),
            ("connections", "Clients connected by MQTT and AMQP.", self._node.own_connection_count()),
            (
                "uncommitted_bytes",
                "Memory of what is not durable yet.",
                self._client.turns.uncommitted_bytes(),
            ),
            ("bans", "Clients, users and addresses that are kept out.", len(access.bans.all())),
            ("banned_logins_total", "Logins refused for a ban.", access.bans.refused_count),
            (
                "flapping_bans_total",
                "Clients banned since they connected too often.",
                access.flapping.banned_count,
            ),
            ("loop_stalls_total", "Steps that held up everybody else.", lag.stall_count),
            ("loop_stalled_seconds_total", "All of them together.", lag.stalled_ms / 1000),
            ("loop_stall_seconds_max", "The longest of them.", lag.longest_ms / 1000),
            *[(f"{name}_total", "See docs/http.md.", counters[name]) for name in _COUNTED],
        ]
        yield from map(single, metrics)

    def _dropped(self) -> Iterator[Figure]:
        counters = asdict(self._node.own_counters())
        samples: list[Sample] = [("", {"reason": told}, counters[name]) for name, told in _DROPPED.items()]
        yield figure("messages_dropped_total", "Messages that went nowhere, by reason.", samples)

    def _of_storage(self) -> Iterator[Figure]:
        """Yield what the last start took, and the journal, where the store has one."""
        start, journal = self._node.start(), self._node.journal()
        replay = (
            "How long the journal took after a crash to hand over what it held, at once or behind the start."
        )
        metrics: list[_Single] = [
            ("start_seconds", "How long the start took until clients were let in.", start.seconds),
            ("start_replay_seconds", replay, start.replay_seconds),
            ("start_replayed_commits", "Commits that it handed over then.", start.replayed_commits),
        ]
        if journal is not None:
            in_use = "Those that cannot be written anew yet."
            metrics += [
                ("journal_size_bytes", "Size of the journal's segments.", journal.size_bytes),
                ("journal_segments", "Segments of the journal.", journal.segment_count),
                ("journal_segments_max", "As many may be there.", limits.JOURNAL_SEGMENTS_MAX),
                ("journal_segments_in_use", in_use, journal.segments_in_use),
                ("journal_waiting_bytes", "What the database has not on disk yet.", journal.waiting_bytes),
            ]
        yield from map(single, metrics)


def _of_commits(client: ShardClient) -> Iterator[Figure]:
    stats = client.commits.stats()
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    samples: list[Sample] = [
        ("_bucket", {"le": bound}, count)
        for bound, count in zip(bounds, accumulate(stats.by_duration), strict=True)
    ]
    samples += [("_sum", {}, stats.seconds), ("_count", {}, stats.count)]
    told = "From closing a commit until it is durable."
    yield "sluicemq_commit_seconds", told, "histogram", samples
    retries = "Times the store failed and was asked once more."
    yield single(("commit_records_total", "Records written by commits.", stats.records))
    yield single(("store_retries_total", retries, stats.retries))


def _of_quotas(client: ShardClient) -> Iterator[Figure]:
    """Yield the quotas that are set, and those that were in somebody's way."""
    views = client.quotas.views()
    found = [(view, quota) for view in views for quota in view.quotas if quota.most or quota.refused]
    for suffix, help_text in _QUOTAS.items():
        samples: list[Sample] = []
        for view, quota in found[: limits.METRICS_QUOTAS_MAX]:
            labels = {"scope": view.scope, "name": view.name, "quota": quota.quota}
            samples.append(("", labels, getattr(quota, suffix.removesuffix("_total"))))
        yield figure(f"quota_{suffix}", help_text, samples)


def figure(suffix: str, help_text: str, samples: list[Sample]) -> Figure:
    """Return a metric of the broker: a gauge, or a counter, called `..._total`."""
    return f"sluicemq_{suffix}", help_text, "counter" if suffix.endswith("_total") else "gauge", samples


def single(metric: tuple[str, str, float]) -> Figure:
    """Return a metric of one sample without labels."""
    suffix, help_text, value = metric
    return figure(suffix, help_text, [("", {}, value)])
