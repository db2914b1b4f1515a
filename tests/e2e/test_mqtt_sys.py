"""`$SYS`: what the broker says of itself, to whom it may."""

import json

from tests.e2e.mqtt import V5


def values(client, count):
    return {m.topic.removeprefix("$SYS/broker/"): m.payload.decode() for m in client.take(count, 20)}


def test_system_topics_tell_of_sessions_and_retained_messages(own_broker, mqtt, name):
    broker = own_broker({"mqtt": {"sys_readers": "everyone", "sys_interval": "1s"}})
    away = mqtt(broker, client_id=name, clean=False, SessionExpiryInterval=600)
    away.subscribe("t", 1)
    away.disconnect()
    client = mqtt(broker)
    client.publish("t", "xyz", 1, retain=True)
    client.subscribe("$SYS/broker/#", 1)
    told = values(client, 19)
    assert told["version"].startswith("SluiceMQ ")
    assert (told["clients/connected"], told["clients/disconnected"], told["clients/total"]) == ("1", "1", "2")
    assert (told["store/messages/count"], told["store/messages/bytes"]) == ("1", "3")
    assert (told["sessions/count"], told["sessions/filters"], told["retained messages/count"]) == (
        "1",
        "1",
        "1",
    )
    mqtt(broker, client_id=name, clean=False, SessionExpiryInterval=600).take(1)
    client.unsubscribe("$SYS/broker/#")
    while not client.quiet():
        client.take(1)
    client.subscribe("$SYS/broker/store/messages/count", 0)
    seen = [client.take(1, 20)[0] for _ in range(2)]
    assert [(m.retain, m.qos) for m in seen] == [(True, 0), (False, 0)]
    assert seen[-1].payload == b"0"


def test_system_topics_are_for_who_may_monitor_and_no_part_of_wildcards(broker, mqtt):
    client = mqtt(version=V5)
    assert client.subscribe("$SYS/#", 0) == 0x87
    assert client.subscribe("#", 0) == 0
    assert client.quiet() or all(not m.topic.startswith("$") for m in list(client.messages.queue))


def test_clients_that_come_and_go_are_told_at_once(own_broker, mqtt, name):
    broker = own_broker({"mqtt": {"sys_readers": "everyone"}})
    watcher = mqtt(broker)
    watcher.subscribe("$SYS/brokers/+/clients/+/+", 0)
    mqtt(broker, client_id=f"{name}/1").disconnect()
    mqtt(broker, client_id=name).drop()
    mqtt(broker, client_id=f"{name}-twice")
    mqtt(broker, client_id=f"{name}-twice")
    told = [(*m.topic.split("/")[4:], json.loads(m.payload)) for m in watcher.take(7)]
    of_first = [(client, what) for client, what, _ in told]
    assert of_first[:4] == [
        (f"{name}%2F1", "connected"),
        (f"{name}%2F1", "disconnected"),
        (name, "connected"),
        (name, "disconnected"),
    ]
    assert (told[0][2]["clientid"], told[0][2]["proto_ver"]) == (f"{name}/1", 5)
    assert told[0][2]["ipaddress"] == "127.0.0.1"
    assert told[1][2]["reason"] == "disconnected"
    assert "another connection uses this client identifier" in [told.get("reason") for _, _, told in told]
