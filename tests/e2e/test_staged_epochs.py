"""Staged epochs over AMQP and MQTT: the commit makes exactly the named attempts visible."""

import pytest

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.staging import call, commit, stage
from tests.waiting import until

pytestmark = pytest.mark.extension


def test_only_the_named_attempts_are_delivered(channel, queue):
    stage(channel, queue, "b0", "b1", part=1, attempt="good", content_type="text/plain")
    stage(channel, queue, "half", part=0, attempt="failed")
    stage(channel, queue, "a0", "a1", "a2", part=0, attempt="good", headers={"mine": 1})
    reader = Collector(channel, queue, ack=True)
    assert reader.wait_quiet() == []
    answer = commit(channel, queue, (0, "good", 3), (1, "good", 2), **{"x-stage-checksum": "c"})
    assert answer == {"status": "committed", "epoch": 0, "rows": 5, "checksum": "c"}
    reader.wait(5)
    reader.wait_quiet()
    assert reader.bodies() == ["a0", "a1", "a2", "b0", "b1"]
    first, last = reader.deliveries[0].properties, reader.deliveries[-1].properties
    assert first.headers == {"mine": 1}
    assert last.headers is None
    assert last.content_type == "text/plain"


def test_second_commit_of_an_epoch_changes_nothing(channel, queue):
    stage(channel, queue, "x", epoch=7)
    assert commit(channel, queue, (0, "a", 1), epoch=7)["status"] == "committed"
    again = commit(channel, queue, (0, "other", 9), epoch=7)
    assert (again["status"], again["rows"]) == ("already", 1)
    assert call(channel, queue, "$stage-status")["epoch"] == 7
    assert call(channel, queue, "$stage-abort", epoch=7) == {"status": "aborted", "attempts": 0}
    older = commit(channel, queue, epoch=6)
    assert older["status"] == "refused"
    assert "older than the last committed, 7" in older["reason"]
    until(lambda: amqp.count(channel, queue) == 1)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([(0, "a", 3)], "has 2 rows, not 3"),
        ([(0, "b", 2)], "has 0 rows, not 2"),
        ([(0, "a", 2), (0, "b", 0)], "named twice"),
        ([(0, "a", -1)], "whole number"),
        ([(0, "", 2)], "text of 1 to"),
        ([(0, "a")], "JSON"),
    ],
)
def test_commit_with_wrong_rows_is_refused_and_changes_nothing(channel, queue, parts, reason):
    stage(channel, queue, "x", "y")
    answer = commit(channel, queue, *parts)
    assert answer["status"] == "refused"
    assert reason in answer["reason"]
    assert commit(channel, queue, (0, "a", 2))["status"] == "committed"


def test_staging_for_a_committed_epoch_is_refused(channel, queue, amqp_connect):
    assert commit(channel, queue, epoch=3)["rows"] == 0
    late = amqp_connect().channel()
    late.confirm_delivery()
    with pytest.raises(amqp.ChannelClosedByBroker, match="epoch 3 of producer 'job' is committed") as closed:
        stage(late, queue, "late", epoch=3)
    assert closed.value.reply_code == 406


def test_single_attempt_can_be_counted_and_aborted(channel, queue):
    stage(channel, queue, "x", "y", attempt="a")
    stage(channel, queue, "z", attempt="b")
    tag = {"x-stage-part": 0, "x-stage-attempt": "a"}
    assert call(channel, queue, "$stage-status", **tag)["staged"] == 2
    assert call(channel, queue, "$stage-abort", body=b'{"parts": [[0, "a", 0]]}')["attempts"] == 1
    assert call(channel, queue, "$stage-status", **tag)["staged"] == 0
    assert commit(channel, queue, (0, "b", 1))["status"] == "committed"


def test_aborted_epoch_and_forgotten_producer_are_unknown(channel, queue):
    stage(channel, queue, "x", epoch=1)
    assert call(channel, queue, "$stage-abort", epoch=1)["attempts"] == 1
    assert commit(channel, queue, (0, "a", 1), epoch=1)["status"] == "refused"
    assert commit(channel, queue, epoch=1)["status"] == "committed"
    assert call(channel, queue, "$stage-forget")["status"] == "forgotten"
    assert call(channel, queue, "$stage-status")["epoch"] is None
    assert call(channel, queue, "$stage-forget")["status"] == "unknown"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"x-stage-producer": "p"}, "x-stage-epoch must be a whole number"),
        ({"x-stage-epoch": 1}, "x-stage-producer must be a text"),
    ],
)
def test_incomplete_staging_headers_are_refused(channel, queue, headers, reason):
    with pytest.raises(amqp.ChannelClosedByBroker, match=reason):
        amqp.publish(channel, queue, "x", headers=headers)


def test_staging_into_an_ephemeral_or_missing_queue_is_refused(channel, amqp_connect, name):
    channel.queue_declare(name, exclusive=True)
    with pytest.raises(amqp.ChannelClosedByBroker, match="kept in memory"):
        stage(channel, name, "x")
    other = amqp_connect().channel()
    other.confirm_delivery()
    with pytest.raises(amqp.ChannelClosedByBroker, match="no queue"):
        other.basic_publish("", f"$queue/no-{name}/$stage-commit", b"{}")


@pytest.mark.parametrize(
    "arguments", [{"x-queue-type": "stream"}, {"x-max-priority": 5}], ids=["stream", "priorities"]
)
def test_streams_and_priority_queues_accept_epochs(channel, name, arguments):
    channel.queue_declare(name, durable=True, arguments=arguments)
    stage(channel, name, "low", "low too", priority=1)
    stage(channel, name, "high", priority=4)
    commit(channel, name, (0, "a", 3))
    if "x-max-priority" in arguments:
        until(lambda: amqp.count(channel, name) == 3)
    channel.basic_qos(prefetch_count=10)
    options = {"x-stream-offset": "first"} if "x-queue-type" in arguments else {}
    reader = Collector(channel, name, ack=True, arguments=options)
    reader.wait(3)
    wanted = ["low", "low too", "high"] if options else ["high", "low", "low too"]
    assert reader.bodies() == wanted
    reader.cancel()
    channel.queue_delete(name)


def test_rows_staged_over_mqtt_are_delivered_after_the_commit(channel, queue, mqtt):
    client = mqtt(version=5)
    tag = [
        ("x-stage-producer", "job"),
        ("x-stage-epoch", "4"),
        ("x-stage-part", "0"),
        ("x-stage-attempt", "m"),
    ]
    client.publish(f"$queue/{queue}/eu", b"from mqtt", user=[*tag, ("mine", "1")])
    assert commit(channel, queue, (0, "m", 1), epoch=4)["status"] == "committed"
    reader = Collector(channel, queue, ack=True)
    delivery = reader.wait(1)[0]
    assert delivery.body == b"from mqtt"
    assert delivery.headers == {"mine": "1"}
    assert delivery.method.routing_key == f"$queue/{queue}/eu"
