"""Staging: what is refused, what goes by itself, and that nothing is looked for before it is durable."""

import pytest

from config import limits
from queue_manager.errors import InvalidArgument, LimitReached, PreconditionFailed
from queue_manager.options import PublishOptions, read_options
from queue_manager.outcomes import ACCEPTED, REFUSED_SIZE
from queue_manager.shard.loads import ScanLoad
from queue_manager.stage_tags import EpochPart, StageTag
from storage.records import payload, payload_keys, staged_rows
from tests.unit.queue_manager.managers import NOW_MS, make_manager, make_queue

TAG = StageTag("job", 0, 0, "a")


def plan_for(manager, *queues, tag=TAG, **options):
    plan = manager.plan("$queue/jobs", 0, b"", True, PublishOptions(stage=tag, **options))
    plan.aim_at(queues, sum(queue.durable for queue in queues))
    return plan


def stage(manager, queue, *bodies, tag=TAG, now_ms=NOW_MS):
    return manager.publish(plan_for(manager, queue, tag=tag), list(bodies), now_ms)


def commit(manager, queue, *parts, epoch=0, now_ms=NOW_MS):
    return queue.rules.stage.commit("job", epoch, [EpochPart(*part) for part in parts], now_ms)


def finish(manager, now_ms=NOW_MS):
    """Close the open commit as if it were durable; gives it."""
    sealed = manager.seal(now_ms)
    if sealed is not None:
        manager.committed(sealed)
        for waiter, tokens in sealed.waiters.items():
            waiter.committed(tokens)
    return sealed


@pytest.fixture
def manager():
    return make_manager()


@pytest.fixture
def queue(manager):
    queue = make_queue(manager, depth_max=0)
    finish(manager)
    return queue


def test_rows_of_one_commit_are_one_record(manager, queue):
    for _ in range(3):
        assert stage(manager, queue, b"x", b"yy") == ACCEPTED
    sealed = finish(manager)
    records = {key: value for key, value in sealed.puts.items() if key.startswith(staged_rows.prefix())}
    (value,) = records.values()
    (run,) = staged_rows.decode(value)
    assert run.bodies == [b"x", b"yy"] * 3
    payloads = [key for key in sealed.puts if key.startswith(payload.prefix())]
    assert payloads == payload_keys(run.first_id, 6)
    assert queue.log.tail.next_offset == 0


def test_what_cannot_be_staged_is_refused_as_it_is_judged(manager, queue, monkeypatch):
    stage(manager, queue, b"x", tag=StageTag("given up", 0, 0, "a"))
    queue.rules.stage.abort("given up", 0, NOW_MS)
    commit(manager, queue)
    for tag, refusal in ((TAG, PreconditionFailed), (StageTag("given up", 0, 0, "a"), PreconditionFailed)):
        with pytest.raises(refusal):
            manager.publisher.judge(plan_for(manager, queue, tag=tag), [b"x"], NOW_MS)
    other = plan_for(manager, queue, tag=StageTag("other", 0, 0, "a"))
    for name, least in (("STAGED_BYTES_PER_QUEUE_MAX", 1), ("STAGED_ATTEMPTS_PER_QUEUE_MAX", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(limits, name, least)
            with pytest.raises(LimitReached):
                manager.publisher.judge(other, [b"xx"], NOW_MS)
    assert queue.rules.stage.producers.count("other") == 0, "nothing changes as it is judged"


@pytest.mark.parametrize(("name", "value"), [("STAGED_RECORD_ROWS_MAX", 2), ("STAGED_RECORD_BYTES_MAX", 6)])
def test_full_records_are_closed(manager, queue, monkeypatch, name, value):
    monkeypatch.setattr(limits, name, value)
    stage(manager, queue, b"one", b"two", b"longer than a record", b"x")
    stage(manager, queue, b"y")
    sealed = finish(manager)
    found = {
        staged_rows.parse_key(key).first_row: [row for run in staged_rows.decode(value) for row in run.bodies]
        for key, value in sealed.puts.items()
        if key.startswith(staged_rows.prefix())
    }
    assert [row for _, rows in sorted(found.items()) for row in rows] == [
        b"one",
        b"two",
        b"longer than a record",
        b"x",
        b"y",
    ]
    assert len(found) == 3


def test_the_store_is_looked_at_only_when_everything_is_durable(manager, queue):
    stage(manager, queue, b"x")
    commit(manager, queue, (0, "a", 1))
    manager.fire_timers(NOW_MS)
    assert not manager.context.loads
    finish(manager)
    assert [type(load) for load in manager.context.loads] == [ScanLoad]


@pytest.mark.parametrize(
    "options",
    [
        {"deduplication_id": "x"},
        {"producer_id": "p", "producer_sequence": 1},
    ],
)
def test_staging_does_not_go_with(manager, queue, options):
    with pytest.raises(InvalidArgument, match="a staged publish has no"):
        manager.publish(plan_for(manager, queue, **options), [b"x"], NOW_MS)


def test_where_rows_cannot_be_staged(manager, queue):
    other = make_queue(manager, "other")
    with pytest.raises(InvalidArgument, match="2 take"):
        manager.publish(plan_for(manager, queue, other), [b"x"], NOW_MS)
    memory = make_queue(manager, "memory", durable=False)
    with pytest.raises(PreconditionFailed, match="kept in memory"):
        stage(manager, memory, b"x")
    small = make_queue(manager, "small", message_bytes_max=2)
    assert stage(manager, small, b"xxx") == REFUSED_SIZE


@pytest.mark.parametrize(
    ("name", "reason"),
    [("STAGED_BYTES_PER_QUEUE_MAX", "staged bytes"), ("STAGED_ATTEMPTS_PER_QUEUE_MAX", "staged attempts")],
)
def test_quotas(manager, queue, monkeypatch, name, reason):
    monkeypatch.setattr(limits, name, 1)
    stage(manager, queue, b"x")
    with pytest.raises(LimitReached, match=reason):
        stage(manager, queue, b"y", tag=TAG._replace(attempt="b"))


def test_an_epoch_too_large_for_the_queue_is_refused_whole(manager):
    queue = make_queue(manager, depth_max=3)
    stage(manager, queue, b"x", b"y")
    stage(manager, queue, b"z", b"z", tag=StageTag("job", 1, 0, "a"))
    commit(manager, queue, (0, "a", 2))
    with pytest.raises(LimitReached, match="no room for the 2 rows"):
        commit(manager, queue, (0, "a", 2), epoch=1)
    assert queue.rules.stage.last_epoch("job").epoch == 0


def test_producers_are_bounded_and_forgotten(manager, queue, monkeypatch):
    monkeypatch.setattr(limits, "STAGE_PRODUCERS_PER_QUEUE_MAX", 1)
    commit(manager, queue)
    with pytest.raises(LimitReached, match="remembers 1 producers"):
        queue.rules.stage.commit("second", 0, [], NOW_MS)
    manager.fire_timers(NOW_MS + limits.STAGE_PRODUCER_LIFETIME_MS + 1)
    assert queue.rules.stage.last_epoch("job") is None
    queue.rules.stage.commit("second", 0, [], NOW_MS)


def test_what_nobody_commits_goes(manager, queue):
    stage(manager, queue, b"x")
    late = NOW_MS + limits.STAGED_LIFETIME_MS
    manager.fire_timers(late - 1)
    assert queue.rules.stage.row_count(TAG) == 1
    manager.fire_timers(late + limits.STAGE_CHECK_INTERVAL_MS)
    assert queue.rules.stage.row_count(TAG) == 0
    with pytest.raises(PreconditionFailed, match="given up"):
        stage(manager, queue, b"y", now_ms=late)


def test_an_epoch_aborted_and_written_again_leaves_nothing(manager, queue, monkeypatch):
    stage(manager, queue, b"x")
    finish(manager)
    assert queue.rules.stage.abort("job", 0, NOW_MS) == 1
    stage(manager, queue, b"y", tag=TAG._replace(attempt="b"))
    commit(manager, queue, (0, "b", 1))
    for _ in range(6):
        manager.fire_timers(NOW_MS)
        finish(manager)
        if manager.context.loads:
            load = manager.context.loads.pop()
            load.then([], NOW_MS)
    assert queue.rules.stage.sweeps.unmoved_count == 0
    monkeypatch.setattr(limits, "STAGED_BYTES_PER_QUEUE_MAX", 1)
    monkeypatch.setattr(limits, "STAGED_ATTEMPTS_PER_QUEUE_MAX", 1)
    assert stage(manager, queue, b"z", tag=TAG._replace(epoch=1)) == ACCEPTED, "nothing of epoch 0 is counted"
    assert queue.rules.stage.forget("job", NOW_MS), "nothing of epoch 0 is on its way"


@pytest.mark.parametrize(
    "values",
    [
        {"x-stage-producer": "p"},
        {"x-stage-producer": "p", "x-stage-epoch": -1, "x-stage-part": 0, "x-stage-attempt": "a"},
        {"x-stage-producer": "p", "x-stage-epoch": True, "x-stage-part": 0, "x-stage-attempt": "a"},
        {"x-stage-producer": "p\0", "x-stage-epoch": 1, "x-stage-part": 0, "x-stage-attempt": "a"},
        {"x-stage-producer": "p", "x-stage-epoch": 1, "x-stage-part": 0, "x-stage-attempt": ""},
        {"x-stage-producer": "p", "x-stage-epoch": "1.5", "x-stage-part": 0, "x-stage-attempt": "a"},
    ],
)
def test_tags_that_are_refused(values):
    with pytest.raises(InvalidArgument, match="x-stage-"):
        read_options(values)


def test_a_tag_is_read():
    values = {"x-stage-producer": "p", "x-stage-epoch": "1", "x-stage-part": 2, "x-stage-attempt": "a"}
    assert read_options(values).stage == StageTag("p", 1, 2, "a")
    assert read_options({}).stage is None


def test_a_small_epoch_does_not_wait_for_a_large_one_of_another_producer(manager, queue, monkeypatch):
    monkeypatch.setattr(limits, "STAGED_RECORD_ROWS_MAX", 1)
    monkeypatch.setattr(limits, "STAGE_READ_RECORDS", 2)
    stage(manager, queue, *[b"large"] * 20)
    stage(manager, queue, *[b"next"] * 4, tag=TAG._replace(epoch=1))
    stage(manager, queue, *[b"small"] * 3, tag=TAG._replace(producer="other"))
    commit(manager, queue, (0, "a", 20))
    commit(manager, queue, (0, "a", 4), epoch=1)
    queue.rules.stage.commit("other", 0, [EpochPart(0, "a", 3)], NOW_MS)
    rows: dict[bytes, bytes] = {}
    order: list[tuple[str, int]] = []
    while queue.rules.stage.sweeps.unmoved_count:
        sealed = finish(manager)
        if sealed is not None:
            rows |= {key: value for key, value in sealed.puts.items() if key.startswith(staged_rows.prefix())}
        manager.fire_timers(NOW_MS)
        while manager.context.loads:
            load = manager.context.loads.pop()
            found = sorted(key for key in rows if load.start <= key and (load.end is None or key < load.end))
            found = found[: load.limit]
            order += [staged_rows.parse_key(key)[1:3] for key in found]
            load.then([(key, rows.pop(key)) for key in found], NOW_MS)
    assert order[:7].count(("other", 0)) == 3
    assert [row for row in order if row[0] == "job"] == [("job", 0)] * 20 + [("job", 1)] * 4
