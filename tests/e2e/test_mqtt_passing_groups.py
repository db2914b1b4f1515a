"""A client without an identifier reads a queue as a group of its own, which goes with it."""

import shutil
import subprocess

import pytest

from tests.e2e import amqp
from tests.e2e.mqtt import V5, V311, payloads, user_property
from tests.waiting import until

pytestmark = pytest.mark.extension


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto_sub is not installed")
@pytest.mark.parametrize("version", ["mqttv311", "5"])
def test_mosquitto_sub_without_identifier_reads_the_queue(broker, channel, queue, version):
    assert channel.basic_get(queue, auto_ack=True)[0] is None, "makes the default group"
    amqp.publish(channel, queue, "a", "b")
    command = ["mosquitto_sub", "-p", str(broker.mqtt_port), "-V", version, "-q", "1", "-C", "2", "-W", "10"]
    read = subprocess.run([*command, "-t", f"$queue/{queue}"], capture_output=True, text=True, timeout=20)
    assert (read.returncode, read.stdout) == (0, "a\nb\n"), read.stderr
    assert channel.basic_get(queue, auto_ack=True)[2] == b"a", "the default group still has everything"


@pytest.mark.parametrize("version", [V311, V5])
def test_group_goes_with_the_client(broker, mqtt, channel, queue, version):
    first = mqtt(client_id="", version=version)
    assert first.subscribe(f"$queue/{queue}") == 1
    amqp.publish(channel, queue, "x")
    assert payloads(first.take(1)) == ["x"]
    second = mqtt(client_id="")
    second.subscribe(f"$queue/{queue}")
    message = second.take_one()
    group = user_property(message, "group-id")
    assert group.startswith("%client-")
    second.disconnect()
    named = mqtt()
    claim = [("message-id", user_property(message, "message-id")), ("group-id", group), ("attempts", "1")]

    def is_told() -> bool:
        assert named.publish(f"$queue/{queue}/$ack", user=claim) == 0x90
        return f"has no consumer group '{group}'" in broker.log

    until(is_told)


def test_group_of_a_client_that_was_there_at_a_crash_goes_at_the_next_start(own_broker, mqtt, name):
    broker = own_broker({"queues": [{"name": name}]})
    client = mqtt(broker, client_id="", manual_ack=True)
    client.subscribe(f"$queue/{name}")
    client.publish(f"$queue/{name}", "x")
    client.take_one()
    broker.restart(kill=True)
    until(lambda: "mqtt.groups_deleted" in broker.log)
    later = mqtt(broker)
    later.subscribe(f"$queue/{name}", user=[("consumer-group", "later")])
    assert payloads(later.take(1)) == ["x"]
