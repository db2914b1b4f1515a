"""MQTT sessions that outlive their connection: reconnects, take-over, kill -9."""

import asyncio
import json
import shutil
import subprocess

import aiomqtt
import httpx
import pytest
from amqtt.client import MQTTClient as AmqttClient
from typer.testing import CliRunner

from broker.cli import app
from tests.e2e import raw_mqtt as wire
from tests.e2e.mqtt import V5, V311, payloads
from tests.e2e.test_mqtt5_features import will_of
from tests.waiting import until

VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])


def lasting(mqtt, version, client_id, to=None, **options):
    """A client whose session outlives its connection."""
    expiry = {"SessionExpiryInterval": 600} if version == V5 else {}
    return mqtt(to, version=version, client_id=client_id, clean=False, **expiry, **options)


def connecting(version, client_id):
    """A CONNECT without clean start; in MQTT 5 the session never expires."""
    return wire.connect(version, client_id, flags=0, props=b"\x11\xff\xff\xff\xff")


def packet_id_of(publish):
    start = 2 + int.from_bytes(publish.body[:2], "big")
    return int.from_bytes(publish.body[start : start + 2], "big")


def payload_of(publish):
    """Of a publish without properties, whose payload is one byte."""
    return publish.body[-1:]


@VERSIONS
def test_session_keeps_subscriptions_and_messages_while_away(mqtt, name, version):
    """[MQTT-3.1.2-4], [MQTT-3.1.2-5] of 3.1.1; [MQTT-3.2.2-2], [MQTT-3.2.2-3]"""
    client = lasting(mqtt, version, name)
    assert not client.session_present
    assert client.subscribe(f"{name}/+", 2) == 2
    client.drop()
    sender = mqtt(version=version)
    for number, qos in enumerate([1, 2, 0, 1]):
        sender.publish(f"{name}/t", str(number), qos)
    back = lasting(mqtt, version, name)
    assert back.session_present
    received = {message.payload: message.qos for message in back.take(3)}
    assert received == {b"0": 1, b"1": 2, b"3": 1}
    sender.publish(f"{name}/t", "live", 0)
    assert back.take_one().payload == b"live"
    back.disconnect()
    again = lasting(mqtt, version, name)
    assert again.session_present
    assert again.quiet(), "what was acknowledged came again"


@VERSIONS
def test_clean_start_ends_the_session(mqtt, name, version):
    """[MQTT-3.1.2-6] of 3.1.1, [MQTT-3.1.2-4] of 5"""
    first = lasting(mqtt, version, name)
    first.subscribe(f"{name}/t")
    first.disconnect()
    mqtt().publish(f"{name}/t", "lost")
    clean = mqtt(version=version, client_id=name, clean=True)
    assert not clean.session_present
    assert clean.quiet()
    clean.disconnect()
    assert not lasting(mqtt, version, name).session_present


@pytest.mark.timed
def test_session_expires_to_the_second(broker, mqtt, name):
    """Section 3.1.2.11.2: also when DISCONNECT says how long."""
    for granted in (2, 0):
        client = lasting(mqtt, V5, name)
        client.subscribe(f"{name}/t")
        client.disconnect(SessionExpiryInterval=granted)
        mqtt()  # has its answer when the DISCONNECT has been read
        broker.pass_time(granted + 0.05)
        after = mqtt(client_id=name, clean=False)
        assert not after.session_present
        after.disconnect()


@VERSIONS
def test_what_was_not_acknowledged_is_repeated_first_and_in_order(raw_mqtt, mqtt, name, version):
    """[MQTT-4.4.0-1], [MQTT-4.6.0-1]: with DUP and their packet identifiers, before what is new."""
    client = raw_mqtt(version=None)
    client.send_bytes(connecting(version, name))
    assert client.expect(wire.CONNACK).body[:2] == b"\x00\x00"
    client.send_bytes(wire.subscribe(f"{name}/t", 1, version=version))
    client.expect(wire.SUBACK)
    sender = mqtt(version=version)
    for number in range(3):
        sender.publish(f"{name}/t", str(number))
    sent = [client.expect(wire.PUBLISH) for _ in range(3)]
    client.send_bytes(wire.acknowledgement(wire.PUBACK, packet_id_of(sent[1])) + b"\xe0\x00")
    assert client.farewell() is None
    sender.publish(f"{name}/t", "3")
    back = raw_mqtt(version=None)
    back.send_bytes(connecting(version, name))
    assert back.expect(wire.CONNACK).body[:2] == b"\x01\x00"
    repeated = [back.expect(wire.PUBLISH) for _ in range(3)]
    assert [payload_of(p) for p in repeated] == [b"0", b"2", b"3"]
    assert [bool(p.flags & 8) for p in repeated] == [True, True, False]
    assert [packet_id_of(p) for p in repeated[:2]] == [packet_id_of(sent[0]), packet_id_of(sent[2])]


def test_what_was_not_acknowledged_is_repeated_while_messages_of_a_queue_wait(raw_mqtt, mqtt, queue, name):
    """[MQTT-4.4.0-1]: what has yet to be sent again holds Receive Maximum, which the others wait for."""
    props = b"\x11\xff\xff\xff\xff" + b"\x21\x00\x03"
    client = raw_mqtt(version=None)
    client.send_bytes(wire.connect(V5, name, flags=0, props=props))
    client.expect(wire.CONNACK)
    for topic_filter in (f"{name}/t", f"$queue/{queue}"):
        client.send_bytes(wire.subscribe(topic_filter, 1))
        client.expect(wire.SUBACK)
    sender = mqtt()
    for topic in (f"{name}/t", f"{name}/t", f"$queue/{queue}", f"$queue/{queue}"):
        sender.publish(topic, "m")
    sent = {packet_id_of(client.expect(wire.PUBLISH)) for _ in range(3)}
    back = raw_mqtt(version=None)
    back.send_bytes(wire.connect(V5, name, flags=0, props=props))
    back.expect(wire.CONNACK)
    again = [back.expect(wire.PUBLISH) for _ in range(3)]
    assert {packet_id_of(publish) for publish in again} == sent
    assert sorted(bool(publish.flags & 8) for publish in again) == [False, True, True]
    for publish in again:
        back.send_bytes(wire.acknowledgement(wire.PUBACK, packet_id_of(publish)))
    assert b"$queue/" in back.expect(wire.PUBLISH).body


@VERSIONS
@pytest.mark.parametrize("way", ["unsubscribed", "again with QoS 0"])
def test_what_is_in_flight_is_repeated_though_its_filter_keeps_nothing_more(
    raw_mqtt, mqtt, name, version, way
):
    """[MQTT-4.4.0-1], [MQTT-3.10.4-3]."""
    client = raw_mqtt(version=None)
    client.send_bytes(connecting(version, name))
    client.expect(wire.CONNACK)
    client.send_bytes(wire.subscribe(f"{name}/t", 1, version=version))
    client.expect(wire.SUBACK)
    mqtt(version=version).publish(f"{name}/t", "x")
    sent = client.expect(wire.PUBLISH)
    if way == "unsubscribed":
        body = b"\x00\x02" + wire.properties(version) + wire.string(f"{name}/t")
        client.send_bytes(wire.packet(wire.UNSUBSCRIBE, 2, body))
        client.expect(wire.UNSUBACK)
    else:
        client.send_bytes(wire.subscribe(f"{name}/t", 0, version=version))
        client.expect(wire.SUBACK)
    client.send_bytes(b"\xe0\x00")
    assert client.farewell() is None
    back = raw_mqtt(version=None)
    back.send_bytes(connecting(version, name))
    assert back.expect(wire.CONNACK).body[:2] == b"\x01\x00"
    repeated = back.expect(wire.PUBLISH)
    assert (payload_of(repeated), packet_id_of(repeated)) == (b"x", packet_id_of(sent))
    assert repeated.flags & 8


@VERSIONS
def test_session_survives_kill_9(own_broker, mqtt, name, version):
    """Subscriptions, what waits, what is in flight, and when it ends."""
    broker = own_broker()
    client = lasting(mqtt, version, name, broker, manual_ack=True)
    client.subscribe(f"{name}/#", 1)
    sender = mqtt(broker, version=version)
    sender.publish(f"{name}/a", "unacknowledged", 1)
    assert client.take_one().payload == b"unacknowledged"
    broker.restart(kill=True)
    mqtt(broker, version=version).publish(f"{name}/b", "later", 1)
    back = lasting(mqtt, version, name, broker)
    assert back.session_present
    assert payloads(back.take(2)) == ["unacknowledged", "later"]
    back.disconnect()
    broker.restart()
    again = lasting(mqtt, version, name, broker)
    assert again.session_present
    assert again.quiet()


@VERSIONS
def test_little_of_what_was_acknowledged_is_repeated_after_kill_9(own_broker, mqtt, name, version):
    """Though the messages are kept, for another session that is away."""
    broker = own_broker()
    for client_id in ("busy", "away"):
        client = lasting(mqtt, version, client_id, broker)
        client.subscribe(f"{name}/t", 1)
        if client_id == "away":
            client.disconnect()
        else:
            busy = client
    sender = mqtt(broker)
    count = 300
    for number in range(count):
        sender.publish(f"{name}/t", str(number))
    assert payloads(busy.take(count)) == [str(number) for number in range(count)]
    broker.restart(kill=True)
    mqtt(broker).publish(f"{name}/t", "last")
    back = lasting(mqtt, version, "busy", broker)
    repeated = []
    while (message := back.take_one()).payload != b"last":
        repeated.append(int(message.payload))
    assert repeated == list(range(count - len(repeated), count))
    assert len(repeated) <= count // 4  # those of the last 20 ms, and what a busy machine adds


def test_many_sessions_with_one_filter_each_get_everything(own_broker, mqtt, name):
    broker = own_broker()
    ids = [f"{name}-{number}" for number in range(5)]
    for client_id in ids:
        client = lasting(mqtt, V5, client_id, broker)
        client.subscribe(f"{name}/t", 1)
        client.disconnect()
    sender = mqtt(broker)
    for number in range(50):
        sender.publish(f"{name}/t", str(number))
    broker.restart(kill=True)
    expected = [str(number) for number in range(50)]
    for client_id in ids:
        assert payloads(lasting(mqtt, V5, client_id, broker).take(50)) == expected


def test_qos_2_from_a_client_is_taken_once_over_a_kill_9(own_broker, raw_mqtt, mqtt, name):
    """[MQTT-4.3.3-10]: a publish sent again after PUBREC was lost, and one released after it."""
    broker = own_broker()
    reader = lasting(mqtt, V5, f"{name}-reader", broker)
    reader.subscribe(f"{name}/t", 2)
    reader.disconnect()
    publish = wire.publish(f"{name}/t", b"once", qos=2, packet_id=7)
    publisher = raw_mqtt(broker, version=None)
    publisher.send_bytes(connecting(V5, name) + publish)
    publisher.expect(wire.CONNACK)
    publisher.expect(wire.PUBREC)
    broker.restart(kill=True)
    back = raw_mqtt(broker, version=None)
    back.send_bytes(connecting(V5, name))
    assert back.expect(wire.CONNACK).body[0] == 1
    back.send_bytes(bytes((publish[0] | 8,)) + publish[1:])
    back.expect(wire.PUBREC)
    back.send_bytes(wire.acknowledgement(wire.PUBREL, 7))
    back.expect(wire.PUBCOMP)
    broker.restart(kill=True)
    third = raw_mqtt(broker, version=None)
    third.send_bytes(connecting(V5, name))
    third.expect(wire.CONNACK)
    third.send_bytes(wire.publish(f"{name}/t", b"another", qos=2, packet_id=7))
    third.expect(wire.PUBREC)
    received = lasting(mqtt, V5, f"{name}-reader", broker).take(2)
    assert payloads(received) == ["once", "another"]


def test_qos_2_to_a_client_is_delivered_once_over_a_kill_9(own_broker, raw_mqtt, mqtt, name):
    """[MQTT-4.3.3-5]: PUBLISH again under its identifier before PUBREC, PUBREL alone after it."""
    broker = own_broker()
    connect = connecting(V5, name)
    client = raw_mqtt(broker, version=None)
    client.send_bytes(connect)
    client.expect(wire.CONNACK)
    client.send_bytes(wire.subscribe(f"{name}/t", 2))
    client.expect(wire.SUBACK)
    mqtt(broker).publish(f"{name}/t", "x", 2)
    first = client.expect(wire.PUBLISH)
    broker.restart(kill=True)
    client = raw_mqtt(broker, version=None)
    client.send_bytes(connect)
    client.expect(wire.CONNACK)
    second = client.expect(wire.PUBLISH)
    assert packet_id_of(second) == packet_id_of(first)
    assert second.flags & 8
    client.send_bytes(wire.acknowledgement(wire.PUBREC, packet_id_of(first)))
    client.expect(wire.PUBREL)
    broker.restart(kill=True)
    client = raw_mqtt(broker, version=None)
    client.send_bytes(connect)
    client.expect(wire.CONNACK)
    assert client.expect(wire.PUBREL).body[:2] == packet_id_of(first).to_bytes(2, "big")
    client.send_bytes(wire.acknowledgement(wire.PUBCOMP, packet_id_of(first)))
    mqtt(broker).publish(f"{name}/t", "y", 1)
    assert payload_of(client.expect(wire.PUBLISH)) == b"y"


@pytest.mark.timed
def test_message_expiry_runs_on_in_the_backlog(broker, mqtt, name):
    """[MQTT-3.3.2-5], [MQTT-3.3.2-6]"""
    client = lasting(mqtt, V5, name)
    client.subscribe(f"{name}/t", 1)
    client.disconnect()
    sender = mqtt()
    sender.publish(f"{name}/t", "short", MessageExpiryInterval=1)
    sender.publish(f"{name}/t", "long", MessageExpiryInterval=100)
    broker.pass_time(1.05)
    received = lasting(mqtt, V5, name).take_one()
    assert received.payload == b"long"
    assert 90 <= received.properties.MessageExpiryInterval <= 99


def test_overlapping_filters_give_one_delivery(mqtt, name):
    """[MQTT-3.3.4-2], [MQTT-3.3.4-4]: with the highest QoS and all identifiers."""
    client = lasting(mqtt, V5, name)
    client.subscribe(f"{name}/#", 1, identifier=1)
    client.subscribe(f"{name}/t", 2, identifier=2)
    client.disconnect()
    mqtt().publish(f"{name}/t", "x", 2)
    back = lasting(mqtt, V5, name)
    message = back.take_one()
    assert message.qos == 2
    assert sorted(message.properties.SubscriptionIdentifier) == [1, 2]
    assert back.quiet()


@VERSIONS
def test_second_connection_takes_the_session_over(mqtt, name, version):
    first = lasting(mqtt, version, name)
    first.subscribe(f"{name}/t", 1)
    second = lasting(mqtt, version, name)
    assert second.session_present
    assert first.disconnected.wait(5)
    sender = mqtt(version=version)
    sender.publish(f"{name}/t", "x")
    assert second.take_one().payload == b"x"
    second.publish(f"{name}/elsewhere", "")  # its PUBACK for x has come, then
    second.drop()
    sender.publish(f"{name}/t", "y")
    assert lasting(mqtt, version, name).take_one().payload == b"y"


def test_subscriptions_to_queues_are_taken_up_again(mqtt, queue, name):
    client = lasting(mqtt, V5, name)
    client.subscribe(f"$queue/{queue}", 1, user=[("consumer-group", "workers"), ("ack", "puback")])
    client.subscribe(f"$share/team/{name}/t", 1)
    client.drop()
    sender = mqtt()
    sender.publish(f"$queue/{queue}", "job")
    back = lasting(mqtt, V5, name)
    assert back.take_one().payload == b"job"
    sender.publish(f"{name}/t", "shared")
    assert back.take_one().payload == b"shared"


def test_subscription_to_a_group_that_came_into_exclusive_use_is_not_taken_up_again(
    mqtt, channel, queue, name
):
    client = lasting(mqtt, V5, name)
    client.subscribe(f"$queue/{queue}", 1, user=[("consumer-group", "workers")])
    client.drop()
    until(lambda: not channel.queue_declare(queue, passive=True).method.consumer_count)
    channel.basic_consume(queue, print, exclusive=True, arguments={"x-consumer-group": "workers"})
    back = lasting(mqtt, V5, name)
    assert back.session_present
    assert back.unsubscribe(f"$queue/{queue}") == 0x11, "no subscription existed"


def test_what_a_leaving_member_gives_back_is_kept_for_members_whose_session_lasts(raw_mqtt, mqtt, name):
    """It was given before such a member joined, and comes again when that one comes back."""
    topic_filter, topic = f"$share/g/{name}/#", f"{name}/a"
    leaving = raw_mqtt(version=V311)
    leaving.send_bytes(wire.subscribe(topic_filter, 1, version=V311))
    leaving.expect(wire.SUBACK)
    device = mqtt()
    for body in ("1", "2", "3"):
        device.publish(topic, body)
        leaving.expect(wire.PUBLISH)  # and not acknowledged
    staying = lasting(mqtt, V5, f"{name}-2")
    staying.subscribe(topic_filter)
    staying.disconnect()
    leaving.send_bytes(b"\xe0\x00")
    assert leaving.farewell() is None
    back = lasting(mqtt, V5, f"{name}-2")
    assert sorted(payloads(back.take(3))) == ["1", "2", "3"]


def test_unsubscribed_filter_brings_nothing_any_more(mqtt, name):
    client = lasting(mqtt, V5, name)
    client.subscribe(f"{name}/a", 1)
    client.subscribe(f"{name}/b", 1)
    assert client.unsubscribe(f"{name}/a") == 0
    assert client.unsubscribe(f"{name}/a") == 0x11
    client.disconnect()
    sender = mqtt()
    sender.publish(f"{name}/a", "a")
    sender.publish(f"{name}/b", "b")
    back = lasting(mqtt, V5, name)
    assert back.take_one().payload == b"b"
    assert back.quiet()


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto_sub is not installed")
def test_mosquitto_sub_gets_what_came_while_it_was_away(broker, mqtt, name):
    command = ["mosquitto_sub", "-p", str(broker.mqtt_port), "-i", name, "-c", "-q", "1", "-t", f"{name}/#"]
    subscribed = subprocess.run([*command, "-E"], timeout=20, capture_output=True)
    assert subscribed.returncode == 0, subscribed.stderr
    sender = mqtt(version=V311)
    for number in range(3):
        sender.publish(f"{name}/t", str(number))
    received = subprocess.run([*command, "-C", "3"], timeout=20, capture_output=True)
    assert received.stdout == b"0\n1\n2\n"


def test_aiomqtt_and_amqtt_have_sessions(broker, mqtt, name):
    async def go():
        async def connect():
            return aiomqtt.Client(
                "127.0.0.1", broker.mqtt_port, identifier=f"{name}-aio", clean_session=False
            )

        async with await connect() as client:
            await client.subscribe(f"{name}/t", qos=1)
        address = f"mqtt://127.0.0.1:{broker.mqtt_port}/"
        old = AmqttClient(client_id=f"{name}-amqtt", config={"auto_reconnect": False})
        await old.connect(address, cleansession=False)
        await old.subscribe([(f"{name}/t", 1)])
        await old.disconnect()
        async with aiomqtt.Client("127.0.0.1", broker.mqtt_port) as sender:
            await sender.publish(f"{name}/t", "x", qos=1)
        async with await connect() as client:
            message = await anext(client.messages)
            assert message.payload == b"x"
        new = AmqttClient(client_id=f"{name}-amqtt", config={"auto_reconnect": False})
        await new.connect(address, cleansession=False)
        message = await new.deliver_message(timeout_duration=10)
        assert message is not None
        assert message.data == b"x"
        await new.disconnect()

    asyncio.run(asyncio.wait_for(go(), 25))


@pytest.mark.parametrize("kill", [True, False], ids=["kill -9", "stop"])
def test_wills_with_a_delay_outlive_the_broker(own_broker, mqtt, kill):
    """[MQTT-3.1.2-8], [MQTT-3.1.3-9]: due after the restart, once, unless the client is back in time"""
    broker = own_broker(timed=True)
    watcher = lasting(mqtt, V5, "watcher", broker)
    watcher.subscribe("#", 1)
    watcher.disconnect()
    for client_id, delay_s, expiry_s, is_there in (
        ("away", 6, 60, False),
        ("there", 4, 60, True),
        ("back", 60, 60, False),
        ("ends", 60, 4, False),
        ("said-goodbye", 4, 60, False),
    ):
        options = {"will": will_of(client_id, delay_s), "SessionExpiryInterval": expiry_s}
        client = mqtt(broker, client_id=client_id, **options)
        if client_id == "said-goodbye":
            client.disconnect()
        elif not is_there:
            client.drop()
    mqtt(broker).publish("waits until all of that is stored", "", 1)
    broker.restart(kill=kill)
    assert mqtt(broker, client_id="back", clean=False, SessionExpiryInterval=60).session_present
    watcher = lasting(mqtt, V5, "watcher", broker)
    broker.pass_time(6.1)
    topics = {message.topic for message in watcher.take(4)}
    assert topics == {"waits until all of that is stored", "away", "there", "ends"}
    assert broker.stop() == 0
    inspected = CliRunner().invoke(app, ["store", "inspect", "--storage", broker.storage, "--json"])
    assert "will" not in json.loads(inspected.stdout)["tallies"]


@pytest.mark.parametrize(
    ("drop", "kept", "codes"),
    [("oldest", "345", [0] * 6), ("newest", "012", [0] * 6), ("reject", "012", [0] * 3 + [0x97] * 3)],
)
def test_what_a_full_session_has_no_room_for_is_counted_or_refused(own_broker, mqtt, drop, kept, codes):
    """With `reject` nobody gets what the publisher is told was not taken."""
    sessions = {"max_queued_messages": 3, "drop": drop}
    broker = own_broker({"mqtt": {"sys_readers": "everyone", "sessions": sessions}})
    away = lasting(mqtt, V5, "away", broker)
    away.subscribe("t", 1)
    away.drop()
    live, sender = mqtt(broker), mqtt(broker)
    live.subscribe("t", 1)
    assert [sender.publish("t", str(number)) for number in range(6)] == codes
    taken = codes.count(0)
    assert payloads(live.take(taken)) == [str(number) for number in range(taken)]
    assert payloads(lasting(mqtt, V5, "away", broker).take(3)) == list(kept)
    live.subscribe("$SYS/broker/publish/messages/dropped/sessions", 0)
    assert live.take_one().payload == str(taken - 3).encode()


def test_a_share_group_of_lasting_sessions_keeps_messages_while_nobody_is_there(own_broker, mqtt):
    """Section 4.8.2, over a crash: each message goes to one member, with its QoS"""
    broker = own_broker()

    def member(client_id):
        return lasting(mqtt, V5, client_id, broker)

    for client_id in ("a", "b"):
        client = member(client_id)
        client.subscribe("$share/g/t/#", 2)
        client.drop()
    sender = mqtt(broker)
    for number, qos in enumerate((1, 2, 0, 1)):
        assert sender.publish("t/x", str(number), qos) == 0
    broker.restart(kill=True)
    sender = mqtt(broker)
    sender.publish("t/x", "4")
    second = member("b")
    assert {m.payload: m.qos for m in second.take(4)} == {b"0": 1, b"1": 2, b"3": 1, b"4": 1}
    first = member("a")
    assert first.quiet()
    for number in range(10):
        sender.publish("t/y", str(number), number % 3)
    received = payloads(first.take(5)) + payloads(second.take(5))
    assert sorted(received) == [str(number) for number in range(10)]


def test_what_a_member_of_a_kept_share_did_not_acknowledge_goes_to_who_comes_next(mqtt, name):
    """[MQTT-4.8.2-4], [MQTT-4.8.2-5], though nobody else is there when it goes"""
    first = lasting(mqtt, V5, f"{name}-a", manual_ack=True)
    first.subscribe(f"$share/g/{name}", 1)
    sender = mqtt()
    for number in range(3):
        sender.publish(name, str(number))
    messages = first.take(3)
    first.puback(messages[0])
    first.publish(f"{name}/elsewhere", "")  # the broker has had the PUBACK, then
    first.drop()
    second = mqtt()  # of a session that does not last
    second.subscribe(f"$share/g/{name}", 1)
    assert payloads(second.take(2)) == ["1", "2"]
    second.publish(f"{name}/elsewhere", "")
    second.drop()
    sender.publish(name, "waits")
    back = lasting(mqtt, V5, f"{name}-a")
    assert payloads(back.take(1)) == ["waits"]
    back.unsubscribe(f"$share/g/{name}")
    assert sender.publish(name, "nobody's") == 0x10
    back.subscribe(f"$share/g/{name}", 1)
    assert back.quiet()


@VERSIONS
@pytest.mark.parametrize("is_received", [False, True], ids=["before PUBREC", "after PUBREC"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["client lost", "broker killed"])
def test_qos_2_to_a_member_of_a_kept_share_is_completed_when_it_comes_back(
    own_broker, raw_mqtt, mqtt, version, is_received, is_killed
):
    """[MQTT-4.8.2-4]; another member that is there meanwhile does not get it"""
    broker = own_broker()
    expiring = b"\x11\xff\xff\xff\xff"

    def member():
        client = raw_mqtt(broker, version=None)
        client.send_bytes(wire.connect(version, "member", flags=0, props=expiring))
        assert client.expect(wire.CONNACK).body[1] == 0
        return client

    first = member()
    first.send_bytes(wire.subscribe("$share/g/t/#", 2, version=version))
    first.expect(wire.SUBACK)
    assert mqtt(broker).publish("t/x", "once", 2) == 0
    sent = first.expect(wire.PUBLISH)
    assert not sent.flags & 8
    packet_id = packet_id_of(sent)
    if is_received:
        first.send_bytes(wire.acknowledgement(wire.PUBREC, packet_id))
        first.expect(wire.PUBREL)
    if is_killed:
        broker.restart(kill=True)
    first.drop()
    other = lasting(mqtt, V5, "other", broker)
    other.subscribe("$share/g/t/#", 2)
    back = member()
    if not is_received:
        again = back.expect(wire.PUBLISH)
        assert again.flags & 8  # DUP
        assert packet_id_of(again) == packet_id
        back.send_bytes(wire.acknowledgement(wire.PUBREC, packet_id))
    assert back.expect(wire.PUBREL).body[:2] == packet_id.to_bytes(2, "big")
    back.send_bytes(wire.acknowledgement(wire.PUBCOMP, packet_id))
    sender = mqtt(broker)
    for number in range(4):
        sender.publish("t/y", str(number), 1)
    received = payloads(other.take(2))
    assert "once" not in received
    last = back.expect(wire.PUBLISH)
    assert packet_id_of(last)


@pytest.mark.parametrize("has_other", [False, True], ids=["alone", "with another"])
def test_member_of_a_kept_share_gets_qos_2_within_its_receive_maximum(raw_mqtt, mqtt, name, has_other):
    """What it has no room for goes to another member, or comes as it completes."""
    slow = raw_mqtt(version=None)
    props = b"\x11\xff\xff\xff\xff" + b"\x21\x00\x02"  # expiry, Receive Maximum
    slow.send_bytes(wire.connect(V5, f"{name}-slow", flags=0, props=props))
    slow.expect(wire.CONNACK)
    slow.send_bytes(wire.subscribe(f"$share/g/{name}", 2))
    slow.expect(wire.SUBACK)
    fast = lasting(mqtt, V5, f"{name}-fast")
    if has_other:
        fast.subscribe(f"$share/g/{name}", 2)
    sender = mqtt()
    for number in range(8):
        assert sender.publish(name, str(number), 2) == 0
    sent = [slow.expect(wire.PUBLISH) for _ in range(2)]
    if has_other:
        assert len(payloads(fast.take(5))) == 5  # of 8; one may wait for the slow one
        return
    received = [payload_of(publish) for publish in sent]
    packet_ids = [packet_id_of(publish) for publish in sent]
    while len(received) < 8:
        packet_id = packet_ids.pop(0)
        slow.send_bytes(wire.acknowledgement(wire.PUBREC, packet_id))
        slow.expect(wire.PUBREL)
        slow.send_bytes(wire.acknowledgement(wire.PUBCOMP, packet_id))
        publish = slow.expect(wire.PUBLISH)
        packet_ids.append(packet_id_of(publish))
        received.append(payload_of(publish))
    assert received == [b"%d" % number for number in range(8)]


def test_member_of_a_kept_share_that_subscribes_anew_is_sent_nothing_again(mqtt, name):
    """[MQTT-4.4.0-1]: what is in flight is sent again only when a client comes back"""
    member = lasting(mqtt, V5, f"{name}-a", manual_ack=True)
    member.subscribe(f"$share/g/{name}", 1)
    sender = mqtt()
    sender.publish(name, "once")
    sent = member.take(1)
    member.subscribe(f"$share/g/{name}", 2)
    assert member.quiet()
    sender.publish(name, "new")
    assert payloads(member.take(1)) == ["new"]
    member.puback(sent[0])


def test_retained_messages_that_were_not_acknowledged_stay_in_flight(own_broker, mqtt):
    """[MQTT-4.4.0-1], over a crash of the broker, too; those that were are not sent again"""
    broker = own_broker()
    sender = mqtt(broker)
    for number in range(4):
        sender.publish(f"r/{number}", str(number), number % 2, retain=True)
    client = lasting(mqtt, V5, "c", broker, manual_ack=True)
    client.subscribe("r/#", 2)
    first = {message.payload: message for message in client.take(4)}
    assert all(message.retain for message in first.values())
    assert {payload: message.qos for payload, message in first.items()} == {
        b"0": 0,
        b"1": 1,
        b"2": 0,
        b"3": 1,
    }
    client.drop()
    again = lasting(mqtt, V5, "c", broker, manual_ack=True)
    assert {(m.payload, m.qos, m.dup, m.retain) for m in again.take(2)} == {
        (b"1", 1, True, True),
        (b"3", 1, True, True),
    }
    broker.restart(kill=True)
    back = lasting(mqtt, V5, "c", broker)
    assert {(m.payload, m.qos) for m in back.take(2)} == {(b"1", 1), (b"3", 1)}
    assert back.quiet()
    back.disconnect()
    back = lasting(mqtt, V5, "c", broker)
    assert back.quiet()
    back.subscribe("r/#", 1)
    assert {m.payload: m.qos for m in back.take(4)} == {b"0": 0, b"1": 1, b"2": 0, b"3": 1}


def test_who_takes_over_with_expiry_0_is_sent_messages_until_it_goes(mqtt, name):
    """[MQTT-3.1.4-3], section 3.1.2.11.2: what a CONNECT says holds for the end of its own connection."""
    first = lasting(mqtt, V5, name)
    first.subscribe(f"{name}/t")
    second = mqtt(client_id=name, clean=False, SessionExpiryInterval=0)
    assert second.session_present
    sender = mqtt()
    assert sender.publish(f"{name}/t", "x") == 0
    assert second.take_one().payload == b"x"
    assert second.subscribe(f"{name}/u") == 1
    sender.publish(f"{name}/u", "y")
    assert second.take_one().payload == b"y"
    second.drop()
    assert not lasting(mqtt, V5, name).session_present


def test_session_that_ends_with_its_connection_ends_with_a_take_over(mqtt, name):
    """Section 3.1.2.11.2: the connection that is taken over was the end of it."""
    first = lasting(mqtt, V5, name)
    first.subscribe(f"{name}/t")
    first.drop()
    second = mqtt(client_id=name, clean=False, SessionExpiryInterval=0)
    assert second.session_present
    third = lasting(mqtt, V5, name)
    assert not third.session_present
    mqtt().publish(f"{name}/t", "x")
    assert third.quiet()
    assert third.subscribe(f"{name}/t") == 1
    mqtt().publish(f"{name}/t", "y")
    assert third.take_one().payload == b"y"


def test_session_of_a_client_that_does_not_wait_for_its_connack_expires(own_broker, raw_mqtt, mqtt):
    """Ends while what its CONNECT did is being written, as well as later."""
    broker = own_broker()
    lasting(mqtt, V5, "c", broker).drop()
    for _ in range(5):
        hasty = raw_mqtt(broker, version=None)
        hasty.send_bytes(wire.connect(V5, "c", flags=2, props=b"\x11\0\0\0\x01"))
        hasty.drop()
    until(lambda: not httpx.get(f"{broker.http_url}/api/v1/sessions", timeout=20).json()["items"])


def test_every_kept_share_of_a_member_goes_on_when_it_has_room_again(mqtt, raw_mqtt, name):
    """Section 4.8.2: a group whose member was busy with another group's messages."""
    lasting(mqtt, V5, name).drop()
    member = mqtt(client_id=name, clean=False, SessionExpiryInterval=0, ReceiveMaximum=2, manual_ack=True)
    assert member.session_present
    member.subscribe(f"$share/h/{name}/#", 1)
    member.subscribe(f"$share/g/{name}/a/#", 1)
    sender = raw_mqtt()
    sender.send_bytes(
        b"".join(wire.publish(f"{name}/a/c", b"%d" % n, qos=1, packet_id=n + 1) for n in range(3))
    )
    assert [sender.expect(wire.PUBACK).body[2:3] for _ in range(3)] == [b"", b"", b""]
    received = []
    for _ in range(6):
        message = member.take_one()
        member.puback(message)
        received.append(message.payload)
    assert sorted(received) == [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert member.quiet()


@pytest.mark.parametrize("expiry_s", [0, 600])
def test_member_of_a_share_whose_receive_maximum_is_used_up_is_passed_over(mqtt, name, expiry_s):
    options = {"SessionExpiryInterval": expiry_s, "manual_ack": True}
    full = mqtt(client_id=f"{name}-full", ReceiveMaximum=1, **options)
    other = mqtt(client_id=f"{name}-other", **options)
    for member in (full, other):
        member.subscribe(f"$share/g/{name}", 1)
    sender = mqtt()
    for number in range(5):
        sender.publish(name, str(number), 1)
    taken = [full.take_one().payload, *[other.take_one().payload for _ in range(4)]]
    assert sorted(taken) == [b"0", b"1", b"2", b"3", b"4"]


def test_what_waits_for_a_kept_share_goes_to_a_member_that_joins(mqtt, name):
    full = mqtt(client_id=name, SessionExpiryInterval=600, ReceiveMaximum=1, manual_ack=True)
    full.subscribe(f"$share/g/{name}", 1)
    sender = mqtt()
    for number in range(3):
        sender.publish(name, str(number), 1)
    assert full.take_one().payload == b"0"
    other = mqtt()
    other.subscribe(f"$share/g/{name}", 1)
    assert [other.take_one().payload for _ in range(2)] == [b"1", b"2"]
    assert full.quiet()


@pytest.mark.timed
@pytest.mark.parametrize("is_back", [True, False], ids=["member-that-was-away", "another-member"])
def test_what_expired_while_it_waited_for_a_member_of_a_kept_share_is_not_sent(broker, mqtt, name, is_back):
    """[MQTT-3.3.2-5]"""
    full = mqtt(client_id=name, SessionExpiryInterval=600, ReceiveMaximum=1, manual_ack=True)
    full.subscribe(f"$share/g/{name}", 1)
    sender = mqtt()
    for number in range(3):
        sender.publish(name, str(number), 1, MessageExpiryInterval=2)
    sender.publish(name, "lasts", 1)
    assert full.take_one().payload == b"0"
    broker.pass_time(3)
    if is_back:
        full.drop()
        other = mqtt(client_id=name, SessionExpiryInterval=600, clean=False)
    else:
        other = mqtt()
        other.subscribe(f"$share/g/{name}", 1)
    assert other.take_one().payload == b"lasts"
    assert other.quiet()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    "granted", [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)], ids=lambda pair: "{}-{}".format(*pair)
)
def test_overlapping_filters_of_a_lasting_session_give_one_copy(mqtt, name, granted, qos):
    """[MQTT-3.3.4-2], [MQTT-3.3.4-4]: whether or not a filter has its messages kept."""
    client = lasting(mqtt, V5, name)
    for identifier, (topic_filter, wanted) in enumerate(
        zip((f"{name}/+", f"{name}/t"), granted, strict=True), 1
    ):
        client.subscribe(topic_filter, wanted, identifier=identifier)
    mqtt().publish(f"{name}/t", "x", qos)
    message = client.take_one()
    assert message.qos == min(qos, max(granted))
    assert sorted(message.properties.SubscriptionIdentifier) == [1, 2]
    assert client.quiet()


def test_overlapping_filters_of_a_lasting_session_give_one_copy_as_they_change(mqtt, name):
    client = lasting(mqtt, V5, name)
    other = lasting(mqtt, V5, f"{name}-other")
    other.subscribe(f"{name}/t", 1)  # the filter has a log already
    sender = mqtt()
    client.subscribe(f"{name}/+", 0, identifier=1)
    sender.publish(f"{name}/t", "1")
    first = client.take_one()
    client.subscribe(f"{name}/t", 1, identifier=2)
    sender.publish(f"{name}/t", "2")
    second = client.take_one()
    client.unsubscribe(f"{name}/t")
    sender.publish(f"{name}/t", "3")
    third = client.take_one()
    seen = [(m.payload, m.qos, sorted(m.properties.SubscriptionIdentifier)) for m in (first, second, third)]
    assert seen == [(b"1", 0, [1]), (b"2", 1, [1, 2]), (b"3", 0, [1])]
    assert client.quiet()


@pytest.mark.parametrize("qos", [0, 1])
def test_what_overlapping_filters_do_not_want_of_oneself_does_not_keep_the_others_from_it(mqtt, name, qos):
    """No Local is of a subscription, not of the client."""
    client = lasting(mqtt, V5, name)
    client.subscribe(f"{name}/+", 0, identifier=1)
    client.subscribe(f"{name}/t", 1, identifier=2, noLocal=True)
    client.publish(f"{name}/t", "own", qos)
    mine = client.take_one()
    assert (mine.payload, mine.qos, mine.properties.SubscriptionIdentifier) == (b"own", 0, [1])
    mqtt().publish(f"{name}/t", "other's", qos)
    others = client.take_one()
    assert (others.payload, others.qos) == (b"other's", qos)
    assert sorted(others.properties.SubscriptionIdentifier) == [1, 2]
    client.subscribe(f"{name}/+", 0, identifier=1, noLocal=True)
    client.publish(f"{name}/t", "own", qos)
    assert client.quiet()


@pytest.mark.parametrize("delay_s", [0, 1])
def test_no_local_holds_back_the_clients_own_will(own_broker, mqtt, delay_s):
    """[MQTT-3.8.3-3]: it is the client that publishes it, now or later."""
    broker = own_broker()
    watcher = mqtt(broker)
    watcher.subscribe("w")
    leaving = lasting(mqtt, V5, "c", broker, will=will_of("w", delay_s))
    leaving.subscribe("w", 1, noLocal=True)
    leaving.subscribe("x", 1)
    leaving.drop()
    assert watcher.take_one().payload == b"gone"
    mqtt(broker).publish("x", "behind it")
    assert payloads(lasting(mqtt, V5, "c", broker).take(1)) == ["behind it"]
