"""Random lives, with their oracles, of shards that are merged into another after each crash."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from broker.engine.merging.shard_merge import OF_FIRST, bring_over, end
from storage import layout
from storage.metadata_log import SEQ_BLOCK_KEY, SegmentMeta, encode_segment_meta, segment_meta_key
from storage.records import (
    NEVER_S,
    TO_EXCHANGE,
    binding,
    filter_log,
    message_ids,
    session,
    session_subscription,
)
from storage.sequence import SeqBlock, encode_block
from tests.memory_store import MemoryStore
from tests.model.harness import drive
from tests.model.test_epochs_model import EpochsModel
from tests.model.test_group_kinds_model import GroupKindsModel
from tests.model.test_identity_model import IdentityModel
from tests.model.test_last_value_model import LastValueModel
from tests.model.test_priority_model import PriorityModel
from tests.model.test_queue_model import QueueModel
from tests.model.test_retry_model import RetryModel
from tests.model.test_routing_model import RoutingModel
from tests.model.test_schedule_model import ScheduleModel
from tests.model.test_sessions_model import FILTERS, STEPS, SessionsModel, step
from tests.model.test_stream_model import StreamModel

MODELS = (
    EpochsModel,
    GroupKindsModel,
    IdentityModel,
    LastValueModel,
    PriorityModel,
    QueueModel,
    RetryModel,
    RoutingModel,
    ScheduleModel,
    StreamModel,
)


_numbers = itertools.count()


def session_rows() -> dict[bytes, bytes]:
    """A session of its own, which reads the filters of the model for sessions."""
    rows = {session.key(f"other-{next(_numbers)}"): session.encode(1, NEVER_S, 0, "")}
    for log, topic_filter in enumerate(FILTERS, 2):
        rows[filter_log.key(log)] = filter_log.encode(topic_filter)
        rows[session_subscription.key(1, topic_filter)] = session_subscription.encode(log, 1, 0, 2, 0, 0, b"")
    return rows


def first_shard(rows: dict[bytes, bytes]) -> MemoryStore:
    """A shard that has given numbers out, with what all shards have alike."""
    alike = {
        key: value
        for key, value in rows.items()
        if key[0] == layout.VERSION
        and (
            key[1] in OF_FIRST
            or (key.startswith(binding.prefix()) and binding.parse_key(key).kind == TO_EXCHANGE)
        )
    }
    given_out = {
        message_ids.key(): encode_block(SeqBlock(12_288, 4_096)),
        SEQ_BLOCK_KEY: encode_block(SeqBlock(4_096, 4_096)),
        segment_meta_key(1): encode_segment_meta(SegmentMeta(1, 0, 0)),
    }
    return MemoryStore(rows=given_out | alike)


@pytest.fixture
def merges(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has a store that crashed merged into another, which is what the next start finds."""
    plain = MemoryStore.crash
    counts: list[int] = []

    def crash(store: MemoryStore) -> MemoryStore:
        left = plain(store)
        rows = dict(left._durable_rows)
        target = first_shard(rows)
        moved = drive(bring_over(target, MemoryStore(rows=rows), 1, lambda seen: None))
        if moved is None:
            return left
        counts.append(moved.records)
        drive(end(target))
        return MemoryStore(deferred=left._deferred, rows=target._rows)

    monkeypatch.setattr(MemoryStore, "crash", crash)
    return counts


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_shard_that_was_merged_goes_on_as_it_would_have(
    merges: list[int], model: type[RuleBasedStateMachine]
) -> None:
    run_state_machine_as_test(
        model,
        settings=settings(
            max_examples=15,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert sum(merges) > 0


@pytest.mark.parametrize("seed", [seed for seed in range(24) if seed % 3])  # no bounds: others are not full
def test_sessions_that_were_merged_get_what_they_are_to_get(
    merges: list[int], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    plain = first_shard
    monkeypatch.setattr(
        f"{__name__}.first_shard", lambda rows: MemoryStore(rows=plain(rows)._rows | session_rows())
    )
    model = SessionsModel(seed)
    for kind in model.random.choices(list(STEPS), list(STEPS.values()), k=150):
        step(model, kind)
    if not merges:
        model.crash()
    for other in [each for each in model.sessions if each.client_id.startswith("other-")]:
        model.sessions.end(other, model.clock.ms)
    model.finish_all()
    assert sum(merges) > 0
