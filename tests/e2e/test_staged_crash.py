"""kill -9 while rows are staged, around the commit, and while they go into the queue: each is there once."""

import json
import time

import pika
import pytest

from spark_bridge import wire
from spark_bridge.client import Connection
from spark_bridge.settings import ConnectionSettings
from tests.e2e import amqp
from tests.e2e.staging import call, commit, stage
from tests.waiting import pass_time, until

pytestmark = pytest.mark.extension

ROWS = 6_000
CONFIG = {"queues": [{"name": "q"}]}


def stage_many(port: int, epoch: int, attempt: str, count: int, **headers: int) -> list[bytes]:
    """Stage rows fast and wait until all of them are confirmed."""
    tag = {"producer": "job", "epoch": epoch, "part": 0, "attempt": attempt}
    properties = wire.encode_properties(
        {"headers": {f"x-stage-{name}": value for name, value in tag.items()} | headers}
    )
    rows = [b"%d-%s-%d" % (epoch, attempt.encode(), number) for number in range(count)]
    with Connection(ConnectionSettings(port=port)) as connection:
        connection.confirm_select()
        for row in rows:
            connection.publish("", "q", row, properties)
        connection.wait_confirmed()
    return rows


def opened(port: int) -> tuple[pika.BlockingConnection, amqp.BlockingChannel]:
    connection = amqp.connect(port)
    channel = connection.channel()
    channel.confirm_delivery()
    return connection, channel


def drained(port: int, count: int) -> list[bytes]:
    """What the queue holds, in order, once it holds so many."""
    connection, channel = opened(port)
    until(lambda: amqp.count(channel, "q") >= count)
    reader = amqp.Collector(channel, "q", auto_ack=True)
    reader.wait(count)
    bodies = [delivery.body for delivery in reader.wait_quiet()]
    amqp.close_quietly(connection)
    return bodies


@pytest.mark.timeout(60, method="signal")
def test_each_row_is_queued_once_whenever_the_broker_is_killed(own_broker):
    broker = own_broker(CONFIG)
    wanted: list[bytes] = []
    for epoch in (0, 1):
        stage_many(broker.amqp_port, epoch, "first", 50)
        if epoch:  # killed between two attempts
            broker.restart(kill=True)
        rows = stage_many(broker.amqp_port, epoch, "second", ROWS)
        connection, channel = opened(broker.amqp_port)
        # killed about the time the commit becomes durable, or when the first rows are queued
        headers = {"x-stage-producer": "job", "x-stage-epoch": epoch}
        body = json.dumps({"parts": [[0, "second", ROWS], [1, "none", 0]]}).encode()
        plain = connection.channel()
        plain.basic_publish("", "$queue/q/$stage-commit", body, pika.BasicProperties(headers=headers))
        if epoch:
            until(lambda: amqp.count(channel, "q") > len(wanted))  # noqa: B023
        broker.restart(kill=True)
        amqp.close_quietly(connection, 0.5)
        connection, channel = opened(broker.amqp_port)
        answer = commit(channel, "q", (0, "second", ROWS), epoch=epoch)
        assert answer["status"] in ("committed", "already")
        assert answer["rows"] == ROWS
        assert call(channel, "q", "$stage-abort", epoch=epoch)["attempts"] == 0
        with pytest.raises(amqp.ChannelClosedByBroker, match="is committed"):
            stage(channel, "q", "late", epoch=epoch)
        amqp.close_quietly(connection)
        wanted += rows
    broker.restart(kill=True)  # the rows of the last epoch are on their way
    assert drained(broker.amqp_port, len(wanted)) == wanted


@pytest.mark.timeout(60, method="signal")
def test_scheduled_rows_are_queued_once_and_not_early_whenever_the_broker_is_killed(own_broker):
    broker = own_broker(CONFIG)
    due_ms = int(time.time() * 1_000) + 4_000
    rows = stage_many(broker.amqp_port, 0, "only", ROWS, **{"deliver-at": due_ms})
    for delay_s in (0.0, 0.05):  # while they go into the schedule
        connection, channel = opened(broker.amqp_port)
        assert commit(channel, "q", (0, "only", ROWS))["rows"] == ROWS
        assert amqp.count(channel, "q") == 0 or time.time() * 1_000 >= due_ms
        pass_time(delay_s)
        broker.restart(kill=True)
        amqp.close_quietly(connection, 0.5)
    connection, channel = opened(broker.amqp_port)
    assert amqp.count(channel, "q") == 0 or time.time() * 1_000 >= due_ms
    amqp.close_quietly(connection)
    # if the restarts last longer than that, some rows are due before they are in the schedule
    assert sorted(drained(broker.amqp_port, ROWS)) == sorted(rows)
    assert time.time() * 1_000 >= due_ms
