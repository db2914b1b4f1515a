"""Methods sent without waiting for answers: they share commits, and are answered in order."""

import re

import httpx
import pytest
from pamqp import commands

from tests.e2e.raw_amqp import method_frame


def commit_count(broker):
    told = httpx.get(f"{broker.http_url}/metrics", trust_env=False, timeout=20).text
    return float(re.search(r"^sluicemq_commit_seconds_count (\S+)", told, re.M).group(1))


@pytest.mark.extension
def test_pipelined_declares_and_binds_share_commits(own_broker, raw_amqp):
    broker = own_broker()
    client = raw_amqp(broker)
    client.open_channel()
    before = commit_count(broker)
    sent = []
    for number in range(200):
        sent.append(method_frame(1, commands.Queue.Declare(queue=f"q{number}", durable=True)))
        sent.append(method_frame(1, commands.Queue.Bind(queue=f"q{number}", exchange="amq.topic")))
    client.send_bytes(b"".join(sent))
    for number in range(200):
        assert client.expect(commands.Queue.DeclareOk, 20).queue == f"q{number}"
        client.expect(commands.Queue.BindOk, 20)
    assert commit_count(broker) - before < 100
    broker.restart(kill=True)
    client = raw_amqp(broker)
    client.open_channel()
    told = client.call(1, commands.Queue.Declare(queue="q199", passive=True), commands.Queue.DeclareOk)
    assert told.message_count == 0


def test_answers_come_in_order_whatever_is_durable(raw_amqp, name):
    client = raw_amqp()
    client.open_channel()
    durable = commands.Queue.Declare(queue=f"{name}-1", durable=True)
    passing = commands.Queue.Declare(queue=f"{name}-2", exclusive=True)
    wanted = [
        (durable, commands.Queue.DeclareOk),
        (passing, commands.Queue.DeclareOk),
        (commands.Exchange.Declare(exchange=f"{name}-x", durable=True), commands.Exchange.DeclareOk),
        (commands.Exchange.Declare(exchange=f"{name}-x", passive=True), commands.Exchange.DeclareOk),
        (commands.Queue.Bind(queue=f"{name}-1", exchange=f"{name}-x"), commands.Queue.BindOk),
        (commands.Queue.Declare(queue=f"{name}-1", passive=True), commands.Queue.DeclareOk),
        (commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk),
        (commands.Queue.Delete(queue=f"{name}-1"), commands.Queue.DeleteOk),
        (commands.Basic.Consume(queue=f"{name}-2", consumer_tag="t"), commands.Basic.ConsumeOk),
        (commands.Exchange.Delete(exchange=f"{name}-x"), commands.Exchange.DeleteOk),
    ]
    client.send_bytes(b"".join(method_frame(1, method) for method, _ in wanted))
    for _, answer in wanted:
        client.expect(answer)


def test_refusal_comes_after_the_answers_to_what_was_sent_before(raw_amqp, name):
    client = raw_amqp()
    client.open_channel()
    for method in (
        commands.Queue.Declare(queue=f"{name}-1", durable=True),
        commands.Queue.Declare(queue=f"{name}-2", durable=True),
        commands.Queue.Bind(queue=f"{name}-2", exchange="nope"),
        commands.Queue.Declare(queue=f"{name}-3", durable=True),
    ):
        client.send(1, method)
    assert client.expect(commands.Queue.DeclareOk).queue == f"{name}-1"
    assert client.expect(commands.Queue.DeclareOk).queue == f"{name}-2"
    assert client.expect(commands.Channel.Close).reply_code == 404
    client.send(1, commands.Channel.CloseOk())
    client.open_channel()
    client.send(1, commands.Queue.Declare(queue=f"{name}-3", passive=True))
    assert client.expect(commands.Channel.Close).reply_code == 404, "nothing is done after a refusal"


def test_publish_right_behind_its_queue_and_binding_is_routed(raw_amqp, name):
    client = raw_amqp()
    client.open_channel(confirm=True)
    client.send(1, commands.Queue.Declare(queue=name, durable=True))
    client.send(1, commands.Queue.Bind(queue=name, exchange="amq.direct", routing_key=name))
    client.publish(1, name, b"x", exchange="amq.direct")
    client.expect(commands.Queue.DeclareOk)
    client.expect(commands.Queue.BindOk)
    client.expect(commands.Basic.Ack)
    told = client.call(1, commands.Queue.Declare(queue=name, passive=True), commands.Queue.DeclareOk)
    assert told.message_count == 1


def test_all_that_was_sent_before_the_channel_is_closed_is_done(raw_amqp, name):
    client = raw_amqp()
    client.open_channel()
    client.send(1, commands.Queue.Declare(queue=name, durable=True))
    client.publish(1, name, b"x")
    client.send(1, commands.Queue.Declare(queue=f"{name}-2", durable=True))
    client.publish(1, f"{name}-2", b"x")
    client.send(1, commands.Channel.Close(200, "bye", 0, 0))
    while type(client.read().method) is not commands.Channel.CloseOk:
        pass
    client.open_channel()
    for queue in (name, f"{name}-2"):
        told = client.call(1, commands.Queue.Declare(queue=queue, passive=True), commands.Queue.DeclareOk)
        assert told.message_count == 1
