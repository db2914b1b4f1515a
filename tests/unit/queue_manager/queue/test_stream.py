"""Streams and their groups without a store."""

from typing import Any

import pytest

from config import limits
from queue_manager.errors import GroupNotFound, InvalidArgument, LimitReached, PreconditionFailed
from queue_manager.filters.consumer_filter import consumer_filter
from queue_manager.log.stream_start import FIRST, NEXT, OFFSET, TIMESTAMP, StreamStart
from queue_manager.model import Message
from queue_manager.shard.loads import LogRows
from storage.envelope import EnvelopeTemplate
from storage.records import group_position, queue_spec
from tests.unit.queue_manager import managers
from tests.unit.queue_manager.managers import NOW_MS, Sink, become_durable, make_manager, make_queue
from tests.unit.queue_manager.managers import publish_durably as publish


@pytest.fixture
def manager():
    return make_manager()


def make_stream(manager, **options) -> Any:
    return make_queue(manager, stream=True, **options)


def read(
    manager, stream, group="", *, pattern="#", start=None, auto_commit=True, credit_max=1_000, no_ack=False,
    **filters,
):  # fmt: skip
    sink = Sink()
    consumer = manager.consumption.subscribe_stream(
        stream, group, pattern, sink, start=start, auto_commit=auto_commit, consumer_id="c",
        credit_max=credit_max, no_ack=no_ack, exclusive=False, lease_ms=30_000, **filters,
    )  # fmt: skip
    manager.dispatch(NOW_MS)
    return consumer, sink


def commit(manager, now_ms=NOW_MS):
    sealed = manager.seal(now_ms)
    if sealed is not None:
        manager.committed(sealed)
    return sealed


def test_every_reader_gets_everything(manager):
    stream = make_stream(manager)
    publish(manager, 3)
    sinks = [read(manager, stream)[1] for _ in range(3)]
    publish(manager, 2)
    manager.dispatch(NOW_MS)
    assert [sink.offsets for sink in sinks] == [[0, 1, 2, 3, 4]] * 3
    assert stream.ready_count() == stream.depth() == stream.waiting_count() == 5


def test_a_nameless_group_goes_with_its_consumer(manager):
    stream = make_stream(manager)
    consumer, sink = read(manager, stream)
    publish(manager, 2)
    manager.dispatch(NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS, keep_claims=True)
    assert len(stream.groups) == 0
    assert manager.ack(sink.claims[:1], NOW_MS) == 0
    manager.requeue(sink.claims[1:], NOW_MS, delay_ms=0)
    sealed = commit(manager)
    assert not [key for key in sealed.puts if key.startswith(group_position.prefix())]
    assert len([key for key in sealed.puts if key.startswith(queue_spec.prefix())]) == 1


def test_there_is_a_limit_of_groups(manager, monkeypatch):
    monkeypatch.setattr(limits, "GROUPS_PER_QUEUE_MAX", 2)
    stream = make_stream(manager)
    read(manager, stream)
    read(manager, stream, "g")
    for group in ("", "h"):
        with pytest.raises(LimitReached):
            read(manager, stream, group)


def test_the_offset_is_written_at_intervals_and_when_the_last_one_goes(manager):
    stream = make_stream(manager)
    publish(manager, 4)
    consumer, sink = read(manager, stream, "g")
    key = group_position.key("jobs\x1fg")
    assert group_position.decode(commit(manager).puts[key]) == 0
    manager.ack(sink.claims[:2], NOW_MS)
    publish(manager, 1)
    assert key not in commit(manager, NOW_MS + 4_900).puts
    manager.dispatch(NOW_MS + 4_900)
    assert manager.commit_due_ms(NOW_MS + 4_990) == 10
    assert group_position.decode(commit(manager, NOW_MS + 5_000).puts[key]) == 2
    manager.ack(sink.claims[2:4], NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS + 5_100)
    assert group_position.decode(commit(manager, NOW_MS + 5_100).puts[key]) == 4


def test_what_a_consumer_leaves_goes_to_the_others_first(manager):
    stream = make_stream(manager)
    publish(manager, 6)
    first, first_sink = read(manager, stream, "g", credit_max=3)
    _, second_sink = read(manager, stream, "g", credit_max=1)
    assert (first_sink.offsets, second_sink.offsets) == ([0, 1, 2], [3])
    manager.consumption.unsubscribe(first, NOW_MS)
    manager.ack(second_sink.claims, NOW_MS)
    manager.dispatch(NOW_MS)
    assert second_sink.offsets == [3, 0]
    assert second_sink.claims[1].attempts == 2


def test_what_is_nacked_waits_for_the_group_again(manager):
    stream = make_stream(manager)
    publish(manager, 5)
    _, sink = read(manager, stream, "g", credit_max=3)
    manager.ack(sink.claims[:1], NOW_MS)
    manager.requeue(sink.claims[1:2], NOW_MS)
    assert stream.groups.find("g").cursor.committed_offset() == 1
    manager.dispatch(NOW_MS)
    assert sink.calls == [[0, 1, 2], [1], [3]]
    assert sink.claims[3].attempts == 2
    manager.ack(sink.claims, NOW_MS)
    manager.dispatch(NOW_MS)
    assert (sink.calls[3:], stream.groups.find("g").cursor.floor()) == ([[4]], 4)


def test_a_reject_settles_and_leases_end(manager):
    stream = make_stream(manager)
    publish(manager, 3)
    _, sink = read(manager, stream, "g")
    manager.reject(sink.claims[:2], NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 1, 2]
    assert stream.groups.find("g").cursor.floor() == 2
    manager.expire(NOW_MS + 30_000)
    assert sink.offsets == [0, 1, 2, 2]
    assert sink.revoked_count == 1


def test_a_reader_by_itself_settles_by_a_nack(manager):
    stream = make_stream(manager)
    publish(manager, 2)
    _, sink = read(manager, stream, credit_max=1)
    manager.requeue(sink.claims, NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 1]


@pytest.mark.parametrize("kept_max", [2, 100])
def test_who_leaves_and_nacks_what_it_did_not_get_to_skips_nothing(manager, kept_max, monkeypatch):
    monkeypatch.setattr(limits, "STREAM_RETURNED_MESSAGES_MAX", kept_max)
    stream = make_stream(manager)
    publish(manager, 20)
    consumer, sink = read(manager, stream, "g", credit_max=10)
    manager.ack(sink.claims[:3], NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS, keep_claims=True)
    for claim in sink.claims[3:]:
        manager.requeue([claim], NOW_MS)
    commit(manager, NOW_MS)
    group = stream.groups.find("g")
    assert (group.cursor.committed, len(group.cursor.claims.returned.heap) <= kept_max) == (3, True)
    assert read(manager, stream, "g")[1].offsets == [*range(3, 20)]
    assert manager.commit_due_ms(NOW_MS) is not None


def test_a_group_that_nobody_reads_is_written_once(manager):
    stream = make_stream(manager)
    publish(manager, 3)
    consumer, sink = read(manager, stream, "g")
    manager.requeue(sink.claims, NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS)
    commit(manager, NOW_MS)
    assert manager.commit_due_ms(NOW_MS) is None


def test_commits_by_hand_stand_when_something_is_nacked_later(manager):
    stream = make_stream(manager)
    publish(manager, 6)
    consumer, sink = read(manager, stream, "g", auto_commit=False, credit_max=4)
    manager.requeue(sink.claims[3:], NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.calls == [[0, 1, 2, 3], [3]]
    manager.commit_offset(stream, "g", 1)
    manager.consumption.unsubscribe(consumer, NOW_MS, keep_claims=True)
    _, other = read(manager, stream, "g", auto_commit=False)
    assert manager.requeue([sink.claims[0], sink.claims[2]], NOW_MS) == 2
    manager.dispatch(NOW_MS)
    assert other.calls == [[2, 3, 4, 5]]


def test_a_reader_by_itself_may_take_its_time(manager):
    stream = make_stream(manager)
    publish(manager, 3)
    _, sink = read(manager, stream)
    manager.expire(NOW_MS + 10**9)
    assert (sink.offsets, sink.revoked_count) == ([0, 1, 2], 0)


def test_commits_by_hand(manager):
    stream = make_stream(manager)
    publish(manager, 6)
    consumer, sink = read(manager, stream, "g", auto_commit=False, credit_max=4)
    manager.ack(sink.claims[:2], NOW_MS)
    manager.dispatch(NOW_MS)
    manager.commit_offset(stream, "g", 1)
    for offset in (6, 10):
        with pytest.raises(InvalidArgument, match="beyond"):
            manager.commit_offset(stream, "g", offset)
    with pytest.raises(GroupNotFound):
        manager.commit_offset(stream, "h", 1)
    with pytest.raises(InvalidArgument, match="no stream"):
        manager.commit_offset(make_queue(manager, "other"), "g", 1)
    with pytest.raises(PreconditionFailed, match="auto-commit"):
        read(manager, stream, "g", auto_commit=True)
    manager.consumption.unsubscribe(consumer, NOW_MS)
    assert stream.groups.find("g").position == 2
    _, again = read(manager, stream, "g")
    assert again.offsets == [2, 3, 4, 5]
    with pytest.raises(InvalidArgument, match="by itself"):
        manager.commit_offset(stream, "g", 3)


def test_an_explicit_place_moves_only_a_group_without_consumers(manager):
    stream = make_stream(manager)
    publish(manager, 4)
    consumer, sink = read(manager, stream, "g", start=StreamStart(OFFSET, 2))
    assert sink.offsets == [2, 3]
    _, other = read(manager, stream, "g", start=StreamStart(FIRST))
    assert other.offsets == []
    manager.ack(sink.claims, NOW_MS)
    for gone in (consumer, stream.groups.find("g").consumers.members[-1]):
        manager.consumption.unsubscribe(gone, NOW_MS)
    assert read(manager, stream, "g", start=StreamStart(NEXT))[1].offsets == []
    assert read(manager, stream, "h", start=StreamStart(FIRST))[1].offsets == [0, 1, 2, 3]


def test_filters_pass_what_they_do_not_want(manager):
    stream = make_stream(manager)
    for topic in ("$queue/jobs/eu", "$queue/jobs/us", "$queue/jobs/eu", "$queue/jobs/us"):
        publish(manager, 1, topic)
    _, sink = read(manager, stream, "g", pattern="eu")
    assert sink.offsets == [0, 2]
    manager.ack(sink.claims, NOW_MS)
    group = stream.groups.find("g@eu")
    assert (group.position, group.cursor.floor()) == (4, 4)
    group.narrow(consumer_filter("JMSMessageID LIKE '%5'", {}))
    publish(manager, 2, "$queue/jobs/eu")
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 2, 5]
    commit(manager, NOW_MS + 60_000)
    assert group.cursor.committed == 5


def test_a_filter_is_that_of_who_reads(manager):
    stream = make_stream(manager)
    publish(manager, 6)
    odd = consumer_filter("JMSMessageID LIKE '%1' OR JMSMessageID LIKE '%3'", {})
    consumer, sink = read(manager, stream, "g", wanted=odd, credit_max=1)
    assert sink.offsets == [1]
    with pytest.raises(PreconditionFailed, match="is read with another filter"):
        read(manager, stream, "g")
    _, other = read(manager, stream, "g", wanted=odd, credit_max=5)
    assert other.offsets == [3]
    for gone in list(stream.groups.find("g").consumers.members):
        manager.consumption.unsubscribe(gone, NOW_MS)
    assert read(manager, stream, "h", wanted=odd, start=StreamStart(OFFSET, 2))[1].offsets == [3]
    # what came back to the group and is not wanted any more is passed
    third = consumer_filter("JMSMessageID LIKE '%3'", {})
    assert read(manager, stream, "g", wanted=third)[1].offsets == [3]
    publish(manager, 1)
    commit(manager, NOW_MS + 60_000)
    assert stream.groups.find("g").cursor.committed == 3


def test_what_a_cancelled_consumer_returns_must_be_wanted_too(manager):
    stream = make_stream(manager)
    publish(manager, 4)
    consumer, sink = read(manager, stream, "g", credit_max=2)
    manager.consumption.unsubscribe(consumer, NOW_MS, keep_claims=True)
    _, narrowed = read(manager, stream, "g", wanted=consumer_filter("JMSMessageID LIKE '%1'", {}))
    manager.requeue(sink.claims, NOW_MS, delay_ms=0)
    manager.dispatch(NOW_MS)
    assert narrowed.offsets == [1]


def test_a_group_with_a_selector_of_its_own(manager):
    stream = make_stream(manager)
    publish(manager, 4)
    selector = "JMSMessageID LIKE '%2'"
    consumer, sink = read(manager, stream, "g", group_selector=selector)
    assert sink.offsets == [2]
    manager.consumption.unsubscribe(consumer, NOW_MS)
    with pytest.raises(PreconditionFailed, match="has the selector"):
        read(manager, stream, "g", group_selector="other = 1")
    assert read(manager, stream, "g")[1].offsets == [2]
    assert read(manager, stream, group_selector=selector)[1].offsets == [2]


@pytest.mark.parametrize("fields", [{"retention_count": 32}, {"retention_bytes": 320}])
def test_a_limit_takes_the_oldest_and_readers_are_told(manager, fields):
    stream = make_stream(manager, **fields)
    publish(manager, 30, size=10)
    consumer, sink = read(manager, stream, "g", credit_max=10)
    publish(manager, 30, size=10)
    assert (stream.log.head_offset, stream.log.chunks.count) == (28, 32)
    group = stream.groups.find("g")
    manager.ack(sink.claims, NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [*range(10), *range(28, 38)]
    assert (
        group.cursor.backlog.take_gap(),
        group.cursor.backlog.take_gap(),
        group.cursor.backlog.lost_count,
    ) == (18, 0, 18)


def test_a_group_goes_on_after_a_restart_before_a_gap_that_nobody_was_told_of(manager):
    stream = make_stream(manager)
    publish(manager, 10)
    _, sink = read(manager, stream, "g", credit_max=2)
    stream.purge(NOW_MS)
    manager.dispatch(NOW_MS)
    cursor = stream.groups.find("g").cursor
    manager.ack(sink.claims, NOW_MS)
    manager.dispatch(NOW_MS)
    cursor.write(manager.context.commit, NOW_MS)
    assert (cursor.position, cursor.backlog.gap, cursor.committed) == (10, 8, 2)
    assert cursor.backlog.take_gap() == 8
    cursor.write(manager.context.commit, NOW_MS)
    assert cursor.committed == 10


def test_age_takes_the_oldest(manager):
    stream = make_stream(manager, retention_age_ms=16_000)
    plan = manager.plan("$queue/jobs", 0, b"", True)
    plan.aim(manager.publisher.route("$queue/jobs", NOW_MS))
    for second in range(30):
        manager.publish(plan, [b"x"], NOW_MS + 1_000 * second)
    assert stream.log.head_offset == 14
    manager.fire_timers(NOW_MS + 40_000)
    assert stream.log.head_offset == 25
    manager.fire_timers(NOW_MS + 60_000)
    assert (stream.log.head_offset, stream.ready_count(), len(stream.log.chunks)) == (30, 0, 0)
    assert manager.context.timers.next_ms() is None


def test_a_stretch_is_as_old_as_its_newest_message(manager):
    stream = make_stream(manager, retention_age_ms=16_000)
    plan = manager.plan("$queue/jobs", 0, b"", True)
    plan.aim(manager.publisher.route("$queue/jobs", NOW_MS))
    for ms in (0, 900):
        manager.publish(plan, [b"x"], NOW_MS + ms)
    manager.fire_timers(NOW_MS + 16_899)
    assert stream.log.head_offset == 0
    manager.fire_timers(NOW_MS + 16_900)
    assert stream.log.head_offset == 2


@pytest.mark.parametrize(("since_ms", "offsets"), [(0, [0, 1, 2, 3]), (10, [2, 3]), (11, [3]), (21, [])])
def test_beginning_at_a_time(manager, since_ms, offsets):
    stream = make_stream(manager)
    plan = manager.plan("$queue/jobs", 0, b"", True)
    plan.aim(manager.publisher.route("$queue/jobs", NOW_MS))
    for ms in (0, 0, 10, 20):
        manager.publish(plan, [b"x"], NOW_MS + ms)
    become_durable(manager)
    assert read(manager, stream, start=StreamStart(TIMESTAMP, NOW_MS + since_ms))[1].offsets == offsets


def test_purge(manager):
    stream = make_stream(manager)
    publish(manager, 3)
    _, sink = read(manager, stream, "g", credit_max=1)
    assert stream.purge(NOW_MS) == 3
    manager.ack(sink.claims, NOW_MS)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 3]


def test_a_quiet_stream_keeps_little_in_memory(manager, monkeypatch):
    monkeypatch.setattr(limits, "STREAM_IDLE_TAIL_BYTES", 2_000)
    stream = make_stream(manager)
    consumer, sink = read(manager, stream, "g", credit_max=1)
    publish(manager, 50)
    manager.dispatch(NOW_MS)
    commit(manager)
    assert len(stream.log.tail) == 50, "somebody reads them"
    manager.consumption.unsubscribe(consumer, NOW_MS)
    stream.retention.trim_tail(1 << 20)
    assert 0 < len(stream.log.tail) < 6


def test_many_quiet_streams_keep_their_share(manager):
    manager.context.cache_bytes_max = 9_000
    streams = [make_queue(manager, name, stream=True) for name in ("a", "b", "c")]
    for stream in streams:
        publish(manager, 50, f"$queue/{stream.name}")
    commit(manager)
    assert sum(stream.log.tail.memory_bytes for stream in streams) <= 9_000


def test_what_was_published_before_the_declaration_is_in_it(manager):
    publish(manager, 3)
    stream = make_stream(manager)
    become_durable(manager)
    assert read(manager, stream)[1].offsets == [0, 1, 2]


@pytest.mark.parametrize("group", ["", "g"])
def test_readers_are_given_what_is_durable_and_nothing_else(manager, group):
    stream = make_stream(manager)
    _, sink = read(manager, stream, group)
    managers.publish(manager, 2)
    sealed = manager.seal(NOW_MS)
    managers.publish(manager, 3)
    manager.dispatch(NOW_MS)
    assert sink.offsets == []
    manager.committed(sealed)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 1]
    stream.purge(NOW_MS)
    manager.dispatch(NOW_MS)
    commit(manager)
    managers.publish(manager, 1)
    commit(manager)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 1, 5]


def test_nothing_read_back_stays_when_the_reader_goes(manager):
    stream = make_stream(manager)
    publish(manager, 3)
    commit(manager)
    stream.log.tail.drop_before(3)
    consumer, _ = read(manager, stream)
    [load] = manager.context.loads
    manager.consumption.unsubscribe(consumer, NOW_MS)
    message = Message(1, 0, b"x", EnvelopeTemplate("$queue/jobs", 0, b""), NOW_MS)
    load.target.log_loaded(LogRows(load, [message], 3, 1), NOW_MS)
    manager.dispatch(NOW_MS)
    assert (stream.retention.blocks.memory_bytes, len(manager.context.replayed)) == (0, 0)


def test_a_deleted_stream_leaves_neither_a_timer_nor_what_was_read_back(manager):
    stream = make_stream(manager, retention_age_ms=60_000)
    publish(manager, 3)
    commit(manager)
    stream.log.tail.drop_before(2)
    read(manager, stream, credit_max=1)
    [load] = manager.context.loads
    message = Message(1, 0, b"x", EnvelopeTemplate("$queue/jobs", 0, b""), NOW_MS)
    load.target.log_loaded(LogRows(load, [message], 2, 1), NOW_MS)
    assert len(manager.context.replayed) == 1
    manager.queues.delete(stream, NOW_MS)
    assert manager.context.timers.next_ms() is None
    assert len(manager.context.replayed) == 0


def test_other_queues_cannot_be_streams(manager):
    stream = make_stream(manager)
    with pytest.raises(PreconditionFailed, match="x-queue-type 'stream'"):
        make_queue(manager)
    with pytest.raises(InvalidArgument, match="stream"):
        manager.consumption.puller(stream, Sink(), "c", lease_ms=1)
