"""Pausing a queue: what publishers and consumers of both protocols see, over a kill and a restart."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pika
import pytest
from typer.testing import CliRunner

from broker.cli import app
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient

Connect = Callable[..., pika.BlockingConnection]
Mqtt = Callable[..., MqttClient]

pytestmark = pytest.mark.timeout(90)


def run(broker: BrokerProcess, *arguments: str) -> Any:
    done = CliRunner().invoke(app, ["queue", *arguments, "--url", broker.http_url])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout) if "--json" in arguments else done.output


def confirming(connection: pika.BlockingConnection) -> Any:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def test_pause_holds_both_protocols_over_a_kill_and_ends_with_resume(
    own_broker: Callable[..., BrokerProcess], amqp_connect: Connect, mqtt: Mqtt
) -> None:
    broker = own_broker()
    run(broker, "declare", "work")
    assert run(broker, "pause", "work", "--deliver") == "work is paused: deliver\n"
    confirming(amqp_connect(broker)).basic_publish("", "work", b"amqp")
    mqtt(broker, version=5).publish("$queue/work", "mqtt", qos=1)
    assert confirming(amqp_connect(broker)).basic_get("work")[0] is None
    run(broker, "pause", "work")
    broker.restart(kill=True)
    assert run(broker, "show", "work", "--json")["pause"] == {"publish": True, "deliver": True}
    assert "publish, deliver" in run(broker, "ls")
    channel = confirming(amqp_connect(broker))
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", "work", b"refused")
    assert mqtt(broker, version=5).publish("$queue/work", "refused") == 0x97
    assert "the queue is paused for publishers" in broker.log
    got: list[bytes] = []
    channel.basic_consume("work", lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    channel.connection.process_data_events(0.2)
    assert got == []
    assert "publish" in run(broker, "resume", "work", "--deliver")
    while len(got) < 2:
        channel.connection.process_data_events(1)
    assert sorted(got) == [b"amqp", b"mqtt"]
    metrics = httpx.get(f"{broker.http_url}/metrics", timeout=20).text
    assert 'sluicemq_queue_publish_paused{queue="work"} 1\n' in metrics
    assert 'sluicemq_queue_deliver_paused{queue="work"} 0\n' in metrics
    assert run(broker, "resume", "work") == "work is not paused\n"
    channel.basic_publish("", "work", b"again")


def test_page_pauses_and_resumes(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    run(broker, "declare", "work")
    page = f"{broker.http_url}/queues/work"
    assert "Pause publishers" in httpx.get(page, timeout=20).text
    for verb, what, shown in (
        ("pause", "publish", "Resume publishers"),
        ("resume", "publish", "Pause publishers"),
    ):
        done = httpx.post(f"{page}/{verb}", data={"what": what}, follow_redirects=True, timeout=20)
        assert shown in done.text
    assert httpx.post(f"{page}/pause", data={}, timeout=20).status_code == 400
