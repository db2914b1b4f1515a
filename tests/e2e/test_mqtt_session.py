"""MQTT connections: CONNECT and its refusals, keep-alive, wills, take-over."""

import struct

import pytest

from tests.e2e import amqp
from tests.e2e import raw_mqtt as wire
from tests.e2e.broker_process import ForeignBroker
from tests.e2e.mqtt import V5, V311, MqttClient, MqttRefused, payloads
from tests.waiting import until

VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])


@VERSIONS
def test_clean_connection_has_no_session_present(mqtt, version):
    client = mqtt(version=version)
    assert not client.session_present
    client.disconnect()


@VERSIONS
def test_clean_session_forgets_subscriptions(mqtt, name, version):
    first = mqtt(version=version, client_id=name)
    first.subscribe(f"{name}/t")
    first.disconnect()
    second = mqtt(version=version, client_id=name)
    assert not second.session_present
    mqtt().publish(f"{name}/t", "x")
    assert second.quiet()


def test_session_expiry_is_honoured_or_denied(mqtt, name):
    """MQTT 5 section 3.2.2.3.2: a server that keeps it shorter says so in CONNACK."""
    first = mqtt(client_id=name, SessionExpiryInterval=60)
    granted = getattr(first.connack_properties, "SessionExpiryInterval", 60)
    first.subscribe(f"{name}/t")
    first.drop()
    second = mqtt(client_id=name, clean=False, SessionExpiryInterval=60)
    assert second.session_present == (granted > 0)


def test_empty_client_id_is_replaced_by_an_assigned_one_in_5(mqtt, name):
    """[MQTT-3.2.2-16]"""
    clients = [mqtt(client_id="") for _ in range(2)]
    assigned = {client.connack_properties.AssignedClientIdentifier for client in clients}
    assert len(assigned) == 2
    clients[0].subscribe(name)
    clients[1].publish(name, "x")
    assert clients[0].take_one().payload == b"x"


def test_empty_client_id_in_311_needs_a_clean_session(raw_mqtt, name):
    """[MQTT-3.1.3-7], [MQTT-3.1.3-8]: fine with a clean session, refused with 0x02 without."""
    clean = raw_mqtt(version=None)
    clean.send_bytes(wire.connect(V311, "", flags=0x02))
    assert clean.expect(wire.CONNACK).body == b"\x00\x00"
    lasting = raw_mqtt(version=None)
    lasting.send_bytes(wire.connect(V311, "", flags=0x00))
    assert lasting.expect(wire.CONNACK).body == b"\x00\x02"
    assert lasting.farewell() is None


@VERSIONS
def test_second_connection_takes_over(broker, mqtt, name, version):
    """[MQTT-3.1.4-2]; 0x8E in MQTT 5"""
    first = mqtt(version=version, client_id=name)
    second = mqtt(version=version, client_id=name)
    assert first.disconnected.wait(3)
    if version == V5:
        assert isinstance(broker, ForeignBroker) or first.disconnect_reason.value == 0x8E
    second.subscribe(f"{name}/t")
    second.publish(f"{name}/t", "mine")
    assert second.take_one().payload == b"mine"


@pytest.mark.timed
@VERSIONS
def test_keep_alive_ends_a_silent_connection(broker, raw_mqtt, version):
    """[MQTT-3.1.2-22], 0x8D in MQTT 5"""
    connection = raw_mqtt(version=version, keep_alive=2)
    broker.pass_time(2.6)
    connection.quiet()
    broker.pass_time(3.2)
    reason = connection.farewell()
    assert isinstance(broker, ForeignBroker) or reason == (0x8D if version == V5 else None)


@pytest.mark.timed
@VERSIONS
def test_pings_keep_the_connection(broker, raw_mqtt, version):
    client = raw_mqtt(version=version, keep_alive=2)
    for _ in range(4):
        broker.pass_time(1.8)
        client.quiet()


@pytest.mark.timed
def test_keep_alive_0_never_ends_the_connection(broker, raw_mqtt):
    connection = raw_mqtt(keep_alive=0)
    broker.pass_time(9)
    connection.quiet()


@pytest.mark.timed
def test_any_packet_renews_the_keep_alive(broker, raw_mqtt, name):
    connection = raw_mqtt(keep_alive=2)
    for packet_id in range(1, 6):
        connection.send_bytes(wire.publish(name, b"x", qos=1, packet_id=packet_id))
        connection.expect(wire.PUBACK)
        broker.pass_time(1.8)
    connection.quiet()


@VERSIONS
def test_will_is_published_when_the_connection_breaks(mqtt, name, version):
    watcher = mqtt(version=version)
    watcher.subscribe(name)
    mortal = mqtt(version=version, will={"topic": name, "payload": "gone", "qos": 1})
    mortal.drop()
    message = watcher.take_one()
    assert (message.payload, message.qos, message.retain) == (b"gone", 1, False)


@VERSIONS
def test_will_is_not_published_after_disconnect(mqtt, name, version):
    """[MQTT-3.14.4-3]"""
    watcher = mqtt(version=version)
    watcher.subscribe(name)
    mqtt(version=version, will={"topic": name, "payload": "gone", "qos": 1}).disconnect()
    assert watcher.quiet()


@VERSIONS
def test_retained_will_is_retained(mqtt, name, version):
    watcher = mqtt(version=version)
    watcher.subscribe(name)
    mqtt(version=version, will={"topic": name, "payload": "gone", "qos": 1, "retain": True}).drop()
    watcher.take_one()
    later = mqtt(version=version)
    later.subscribe(name)
    message = later.take_one()
    assert (message.payload, message.retain) == (b"gone", True)


@pytest.mark.timed
def test_will_is_published_after_the_keep_alive(broker, mqtt, raw_mqtt, name):
    watcher = mqtt()
    watcher.subscribe(name)
    connection = raw_mqtt(version=None)
    will = wire.string(name) + wire.string("asleep")
    connection.send_bytes(wire.connect(V311, f"{name}-c", keep_alive=1, flags=0x06, after=will))
    connection.expect(wire.CONNACK)
    broker.pass_time(1.6)
    assert watcher.take_one().payload == b"asleep"


def test_will_is_published_after_invalid_input(mqtt, raw_mqtt, name):
    """[MQTT-3.1.2-8]: a protocol error is no clean end."""
    watcher = mqtt()
    watcher.subscribe(name)
    connection = raw_mqtt(version=None)
    will = wire.string(name) + wire.string("misbehaved")
    connection.send_bytes(wire.connect(V311, f"{name}-c", flags=0x06, after=will))
    connection.expect(wire.CONNACK)
    connection.send_bytes(b"\xf0\x00")
    assert watcher.take_one().payload == b"misbehaved"


def test_will_is_published_after_a_take_over(mqtt, name):
    watcher = mqtt()
    watcher.subscribe(f"{name}/will")
    mqtt(client_id=name, will={"topic": f"{name}/will", "payload": "replaced", "qos": 1})
    mqtt(client_id=name)
    assert watcher.take_one().payload == b"replaced"


def test_disconnect_with_will_code_publishes_the_will(mqtt, raw_mqtt, name):
    """MQTT 5 section 3.14.2.1: reason code 0x04"""
    watcher = mqtt()
    watcher.subscribe(name)
    connection = raw_mqtt(version=None)
    will = wire.properties(V5) + wire.string(name) + wire.string("bye")
    connection.send_bytes(wire.connect(V5, f"{name}-c", flags=0x06, after=will))
    connection.expect(wire.CONNACK)
    connection.send_bytes(wire.packet(wire.DISCONNECT, 0, b"\x04"))
    assert watcher.take_one().payload == b"bye"


def test_will_is_published_with_its_properties(mqtt, raw_mqtt, name):
    """MQTT 5 section 3.1.3.2: user properties, content type, correlation, response topic"""
    watcher = mqtt()
    watcher.subscribe(name)
    connection = raw_mqtt(version=None)
    props = wire.user_property("k", "1") + b"\x03" + wire.string("text/plain") + wire.user_property("k", "2")
    will = wire.properties(V5, props) + wire.string(name) + wire.string("x")
    connection.send_bytes(wire.connect(V5, f"{name}-c", flags=0x06, after=will))
    connection.expect(wire.CONNACK)
    connection.drop()
    message = watcher.take_one()
    assert message.properties.ContentType == "text/plain"
    assert message.properties.UserProperty == [("k", "1"), ("k", "2")]


@pytest.mark.extension
def test_will_is_enqueued(mqtt, channel, queue):
    mqtt(will={"topic": f"$queue/{queue}/alarm", "payload": "device lost", "qos": 1}).drop()
    assert until(lambda: amqp.get(channel, queue)).body == b"device lost"


@VERSIONS
def test_packets_sent_before_connack_are_processed(raw_mqtt, name, version):
    """A client need not wait for CONNACK (section 3.1.4, non-normative)."""
    connection = raw_mqtt(version=None)
    connection.send_bytes(
        wire.connect(version, f"{name}-c")
        + wire.subscribe(name, 0, version=version)
        + wire.publish(name, b"early", version=version)
    )
    connection.expect(wire.CONNACK)
    connection.expect(wire.SUBACK)
    assert connection.expect(wire.PUBLISH).body.endswith(b"early")


def test_packets_sent_byte_by_byte_are_processed(raw_mqtt, name):
    connection = raw_mqtt()
    for octet in wire.subscribe(name, 1) + wire.publish(name, b"slow", qos=1, packet_id=7):
        connection.send_bytes(bytes([octet]))
    connection.expect(wire.SUBACK)
    kinds = {connection.read().kind for _ in range(2)}
    assert kinds == {wire.PUBACK, wire.PUBLISH}


def test_unacknowledged_qos_2_is_not_published_twice(raw_mqtt, mqtt, name):
    """[MQTT-4.3.3-10]: a second PUBLISH with the packet id of an open one is answered and dropped."""
    watcher = mqtt()
    watcher.subscribe(name, 2)
    connection = raw_mqtt(version=V311)
    connection.send_bytes(wire.publish(name, b"once", version=V311, qos=2, packet_id=5))
    assert connection.expect(wire.PUBREC).body[:2] == b"\x00\x05"
    connection.send_bytes(wire.publish(name, b"once", version=V311, qos=2, packet_id=5, dup=True))
    assert connection.expect(wire.PUBREC).body[:2] == b"\x00\x05"
    connection.send_bytes(wire.acknowledgement(wire.PUBREL, 5))
    assert connection.expect(wire.PUBCOMP).body[:2] == b"\x00\x05"
    assert payloads(watcher.take(1)) == ["once"]
    assert watcher.quiet()
    connection.send_bytes(wire.publish(name, b"again", version=V311, qos=2, packet_id=5))
    connection.expect(wire.PUBREC)
    connection.send_bytes(wire.acknowledgement(wire.PUBREL, 5))
    connection.expect(wire.PUBCOMP)
    assert payloads(watcher.take(1)) == ["again"]


@pytest.mark.extension  # mosquitto 2.0.11 sends two for one acknowledged
def test_receive_maximum_of_the_client_is_respected(raw_mqtt, mqtt, name):
    """[MQTT-3.3.4-9]"""
    connection = raw_mqtt(props=b"\x21\x00\x03")
    connection.send_bytes(wire.subscribe(name, 1))
    connection.expect(wire.SUBACK)
    publisher = mqtt()
    for number in range(8):
        publisher.publish(name, str(number))
    packet_ids = []
    for _ in range(3):
        body = connection.expect(wire.PUBLISH).body
        packet_ids.append(struct.unpack_from(">H", body, 2 + len(name))[0])
    connection.quiet()
    connection.send_bytes(wire.acknowledgement(wire.PUBACK, packet_ids[0]))
    connection.expect(wire.PUBLISH)
    connection.quiet()


def test_maximum_packet_size_of_the_client_is_respected(mqtt, name):
    """[MQTT-3.1.2-24]"""
    small: MqttClient = mqtt(MaximumPacketSize=200)
    small.subscribe(name)
    publisher = mqtt()
    publisher.publish(name, b"x" * 1000)
    publisher.publish(name, "fits")
    assert payloads(small.take(1)) == ["fits"]
    assert small.quiet()


@pytest.mark.extension
def test_wrong_password_is_refused(broker):
    """Only anonymous clients and guest/guest are let in, from loopback."""
    client = MqttClient(broker.mqtt_port, username="guest", password="wrong")
    with pytest.raises(MqttRefused) as refused:
        client.connect()
    client.end()
    assert refused.value.code.value in (0x86, 0x87)
