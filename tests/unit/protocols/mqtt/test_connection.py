"""The life of a connection: legality, answers, deadlines. Clauses stand in the names."""

import pytest

from config import limits
from protocols.errors import LocalProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt import events
from protocols.mqtt import packets as p
from protocols.mqtt.codec import encode_packet
from protocols.mqtt.connection import InboundQos2, MqttConnection
from protocols.mqtt.offer import Offer
from protocols.mqtt.properties import Properties
from tests.unit.protocols.mqtt.live import flat, live, sent
from tests.vectors.mqtt import ILLEGAL, REFUSED, REFUSED_V5, Illegal

PING = bytes.fromhex("c000")


@pytest.mark.parametrize("case", ILLEGAL, ids=lambda case: f"v{case.version}_{case.name}")
def test_illegal_packet_closes_with_its_reason(case: Illegal) -> None:
    connection = live(case.version)
    found = connection.receive(PING + case.wire + PING, 1.0)
    lost = found[-1]
    assert isinstance(lost, events.ConnectionLost)
    assert (lost.reason_code, lost.by_peer, connection.closed) == (case.reason_code, False, True)
    answers = sent(connection)
    if case.version == 5:
        assert answers[0] == p.PingResp()
        assert answers[1:] == [p.Disconnect(case.reason_code, Properties(reason_string=lost.reason))]
    else:
        assert answers == [p.PingResp()]  # 3.1.1 has no DISCONNECT from the server
    assert connection.receive(PING, 2.0) == []
    assert connection.receive_eof() == []


@pytest.mark.parametrize(("name", "wire", "answer"), REFUSED, ids=[case[0] for case in REFUSED])
def test_invalid_connect_of_3_1_1_gets_its_return_code(name: str, wire: str, answer: str) -> None:
    connection = MqttConnection(0.0)
    (lost,) = connection.receive(bytes.fromhex(wire), 0.0)
    assert isinstance(lost, events.ConnectionLost)
    assert connection.closed
    assert b"".join(connection.output) == bytes.fromhex(answer)


@pytest.mark.parametrize(("name", "wire", "code"), REFUSED_V5, ids=[case[0] for case in REFUSED_V5])
def test_invalid_connect_of_5_gets_its_reason_code(name: str, wire: str, code: int) -> None:
    connection = MqttConnection(0.0)
    (lost,) = connection.receive(bytes.fromhex(wire), 0.0)
    assert isinstance(lost, events.ConnectionLost)
    assert lost.reason_code == code
    (answer,) = sent(connection)
    assert isinstance(answer, p.ConnAck)
    assert answer.reason_code == code
    assert answer.properties.reason_string == lost.reason


def test_oversized_connect_is_refused_before_it_is_read() -> None:
    connection = MqttConnection(0.0)
    (lost,) = connection.receive(bytes.fromhex("10ffffff7f"), 0.0)
    assert lost.reason_code == c.PACKET_TOO_LARGE


def test_limits_of_the_client_are_read_from_connect() -> None:
    properties = Properties(receive_maximum=7, maximum_packet_size_bytes=500, topic_alias_maximum=3)
    connection = live(5, p.Connect(5, "me", keep_alive_s=9, properties=properties))
    assert connection.protocol_version == 5
    assert connection.client_id == "me"
    assert connection.keep_alive_s == 9
    assert connection.client_receive_maximum == 7
    assert connection.client_maximum_packet_size == 500
    assert connection.client_topic_alias_maximum == 3


def test_connack_advertises_the_limits_of_the_broker() -> None:
    connection = MqttConnection(0.0, Offer(receive_maximum=20, packet_bytes_max=4096))
    connection.receive(encode_packet(p.Connect(5, ""), 5), 0.0)
    ours = Properties(assigned_client_identifier="x", server_keep_alive_s=30)
    connection.accept(True, ours)
    (answer,) = sent(connection)
    assert answer == p.ConnAck(
        True,
        0,
        Properties(
            assigned_client_identifier="x",
            server_keep_alive_s=30,
            receive_maximum=20,
            maximum_packet_size_bytes=4096,
            topic_alias_maximum=limits.MQTT_TOPIC_ALIAS_MAXIMUM,
        ),
    )
    assert ours.receive_maximum is None
    assert connection.keep_alive_s == 30


def test_packets_after_connect_wait_for_accept() -> None:
    connection = MqttConnection(0.0)
    found = connection.receive(encode_packet(p.Connect(4, "c"), 4) + PING, 0.0)
    found += connection.receive(encode_packet(p.Publish("t", b"x"), 4), 0.0)
    assert len(found) == 1
    assert connection.output == []
    assert flat(connection.accept(False)) == [("publish", "t", 0, False, False, b"", 0, b"x")]
    assert sent(connection) == [p.ConnAck(False, 0), p.PingResp()]


def test_too_many_bytes_before_accept_are_refused() -> None:
    connection = MqttConnection(0.0)
    connection.receive(encode_packet(p.Connect(5, "c"), 5), 0.0)
    (lost,) = connection.receive(bytes(limits.MQTT_CONNECT_BYTES_MAX + 1), 0.0)
    assert lost.reason_code == c.QUOTA_EXCEEDED
    assert connection.accept(False) == []
    connection.refuse(c.NOT_AUTHORIZED)
    (answer,) = sent(connection)
    assert isinstance(answer, p.ConnAck)
    assert answer.reason_code == c.QUOTA_EXCEEDED


@pytest.mark.parametrize(
    ("reason_code", "return_code"),
    [(0x84, 1), (0x85, 2), (0x88, 3), (0x97, 3), (0x86, 4), (0x87, 5), (0x8A, 5)],
)
def test_refuse_maps_reason_to_return_code(reason_code: int, return_code: int) -> None:
    for version in (4, 5):
        connection = MqttConnection(0.0)
        connection.receive(encode_packet(p.Connect(version, "c"), version), 0.0)
        connection.refuse(reason_code, "no")
        (answer,) = sent(connection)
        assert isinstance(answer, p.ConnAck)
        assert answer.reason_code == (return_code if version == 4 else reason_code)
        assert answer.properties.reason_string == (None if version == 4 else "no")
        assert connection.closed
        (lost,) = connection.receive_eof()
        assert (lost.reason_code, lost.reason, lost.by_peer) == (reason_code, "no", False)
        assert connection.receive_eof() == []


def test_shutdown_during_the_handshake_answers_with_connack() -> None:
    connection = MqttConnection(0.0)
    connection.receive(encode_packet(p.Connect(5, "c"), 5), 0.0)
    connection.disconnect(c.SERVER_SHUTTING_DOWN)
    (answer,) = sent(connection)
    assert isinstance(answer, p.ConnAck)
    assert answer.reason_code == c.SERVER_UNAVAILABLE


def test_accept_or_refuse_without_a_connect_raises() -> None:
    for connection in (MqttConnection(0.0), live(5)):
        with pytest.raises(LocalProtocolError):
            connection.accept(False)
        with pytest.raises(LocalProtocolError):
            connection.refuse(c.NOT_AUTHORIZED)


def test_disconnect_of_the_server_is_sent_in_5_only() -> None:
    for version in (4, 5):
        connection = live(version)
        connection.disconnect(c.SESSION_TAKEN_OVER, "elsewhere")
        connection.disconnect(c.SERVER_BUSY)
        expected = [p.Disconnect(c.SESSION_TAKEN_OVER, Properties(reason_string="elsewhere"))]
        assert sent(connection) == (expected if version == 5 else [])
        (lost,) = connection.receive_eof()
        assert lost.reason_code == c.SESSION_TAKEN_OVER


def test_disconnect_of_the_client_ends_the_connection() -> None:
    for version, wire, code in ((4, "e000", 0), (5, "e000", 0), (5, "e00104", 4)):
        connection = live(version)
        disconnect, lost = connection.receive(bytes.fromhex(wire) + PING, 1.0)
        assert isinstance(disconnect, events.DisconnectReceived)
        assert (disconnect.reason_code, lost.reason_code, lost.by_peer) == (code, code, True)
        assert connection.closed
        assert connection.output == []
        assert connection.receive_eof() == []


def test_end_of_transport_is_a_connection_lost_by_the_peer() -> None:
    connection = live(4)
    (lost,) = connection.receive_eof()
    assert (lost.reason_code, lost.by_peer) == (c.UNSPECIFIED_ERROR, True)
    assert connection.receive_eof() == []
    assert connection.next_deadline() is None


def test_silence_beyond_keep_alive_closes_MQTT_3_1_2_22() -> None:
    connection = live(5, p.Connect(5, "c", keep_alive_s=10))
    assert connection.next_deadline() == 15.0
    connection.receive(PING, 12.0)
    assert sent(connection) == [p.PingResp()]
    assert connection.handle_timeout(26.9) == []
    (lost,) = connection.handle_timeout(27.0)
    assert lost.reason_code == c.KEEP_ALIVE_TIMEOUT
    (answer,) = sent(connection)
    assert answer == p.Disconnect(c.KEEP_ALIVE_TIMEOUT, Properties(reason_string=lost.reason))


def test_keep_alive_0_never_times_out() -> None:
    assert live(4).next_deadline() is None


def test_handshake_deadline_does_not_move_with_bytes() -> None:
    connection = MqttConnection(5.0)
    connection.receive(b"\x10", 9.0)
    assert connection.next_deadline() == 5.0 + limits.MQTT_HANDSHAKE_TIMEOUT_S
    assert connection.handle_timeout(6.0) == []
    assert len(connection.handle_timeout(100.0)) == 1
    assert connection.output == []


def test_connect_not_accepted_in_time_is_answered_with_unavailable() -> None:
    connection = MqttConnection(0.0)
    connection.receive(encode_packet(p.Connect(4, "c"), 4), 0.0)
    connection.handle_timeout(100.0)
    assert sent(connection) == [p.ConnAck(False, 3)]


def test_subscribe_and_unsubscribe_arrive_with_all_fields() -> None:
    connection = live(5)
    pairs = [("consumer-group", "g"), ("ack", "puback"), ("ack", "again")]
    properties = Properties(user_properties=pairs, subscription_identifiers=[9])
    requests = [
        p.SubscriptionRequest("$share/g/a/#", 1),
        p.SubscriptionRequest("$queue/q/+", 2, True, True, 1),
    ]
    wire = encode_packet(p.Subscribe(3, requests, properties), 5)
    wire += encode_packet(p.Unsubscribe(4, ["x/#"], Properties(user_properties=pairs)), 5)
    subscribe, unsubscribe = connection.receive(wire, 1.0)
    assert isinstance(subscribe, events.SubscribeReceived)
    assert (subscribe.packet_id, subscribe.filters) == (3, requests)
    assert (subscribe.user_properties, subscribe.subscription_identifier) == (pairs, 9)
    assert isinstance(unsubscribe, events.UnsubscribeReceived)
    assert (unsubscribe.packet_id, unsubscribe.filters) == (4, ["x/#"])
    connection.send_suback(3, [1, 0x87])
    connection.send_unsuback(4, [0x11])
    assert sent(connection) == [p.SubAck(3, [1, 0x87]), p.UnsubAck(4, [0x11])]


def test_answers_to_3_1_1_have_no_reason_code() -> None:
    connection = live(4)
    connection.send_suback(1, [2, 0x97])
    connection.send_unsuback(2, [0])
    connection.send_puback(3, c.QUOTA_EXCEEDED)
    assert b"".join(connection.output) == bytes.fromhex("9004 0001 0280 b002 0002 4002 0003")


def test_acknowledgements_arrive_as_runs_and_failures_alone() -> None:
    connection = live(5)
    wire = bytes.fromhex("40020001 40020002 4003000310 40020004 50020005 5003000687 70020007 70020008")
    assert [(e.packet_type, e.packet_ids, e.reason_code) for e in connection.receive(wire, 1.0)] == [
        (c.PUBACK, [1, 2], 0),
        (c.PUBACK, [3], 0x10),
        (c.PUBACK, [4], 0),
        (c.PUBREC, [5], 0),
        (c.PUBREC, [6], 0x87),
        (c.PUBCOMP, [7, 8], 0),
    ]


def test_packet_id_0_after_valid_acknowledgements_closes() -> None:
    run, lost = live(5).receive(bytes.fromhex("40020001 40020000 40020002"), 1.0)
    assert run.packet_ids == [1]
    assert lost.reason_code == c.PROTOCOL_ERROR


def qos2(*packet_ids: int, dup: bool = False) -> bytes:
    return b"".join(
        encode_packet(p.Publish("t", bytes((i % 256,)), qos=2, packet_id=i, dup=dup), 5) for i in packet_ids
    )


def test_repeated_qos_2_publish_arrives_once() -> None:
    connection = live(5)
    assert [item[6] for item in flat(connection.receive(qos2(1, 2), 1.0))] == [1, 2]
    assert connection.receive(qos2(1, dup=True), 1.0) == []  # not answered yet: the answer is on its way
    assert connection.output == []
    connection.send_pubrec_run([1, 2])
    assert sent(connection) == [p.PubRec(1), p.PubRec(2)]
    assert flat(connection.receive(qos2(2, 3, dup=True), 1.0)) == [
        ("publish", "t", 2, False, True, b"", 3, b"\3")
    ]
    assert sent(connection) == [p.PubRec(2)]  # [MQTT-4.3.3-10]
    assert flat(connection.receive(bytes.fromhex("62020001 62020002"), 1.0)) == [
        ("ack", c.PUBREL, 1, 0),
        ("ack", c.PUBREL, 2, 0),
    ]
    connection.send_pubcomp_run([1, 2])
    connection.send_pubcomp_run([9, 9])
    assert sent(connection) == [p.PubComp(1), p.PubComp(2), p.PubComp(9, 0x92), p.PubComp(9, 0x92)]
    assert len(connection.receive(qos2(1), 1.0)) == 1  # released identifiers are new again


def test_refused_qos_2_publish_frees_its_identifier() -> None:
    connection = live(5)
    connection.receive(qos2(1), 1.0)
    connection.send_pubrec(1, c.QUOTA_EXCEEDED, Properties(reason_string="full"))
    assert sent(connection) == [p.PubRec(1, c.QUOTA_EXCEEDED, Properties(reason_string="full"))]
    assert len(connection.receive(qos2(1), 1.0)) == 1


def test_qos_2_state_is_taken_over_by_the_next_connection_4_1() -> None:
    first = live(5)
    first.receive(qos2(1, 2), 1.0)
    first.send_pubrec_run([1])
    first.receive_eof()
    second = MqttConnection(0.0)
    second.receive(encode_packet(p.Connect(5, "c", clean_start=False), 5), 0.0)
    second.accept(True, inbound_qos2=first.inbound_qos2)
    second.output.clear()
    first.output.clear()
    first.send_pubrec_run([2])  # became durable too late for its own connection
    assert first.output == []
    assert second.receive(qos2(1, 2, dup=True), 1.0) == []
    assert sent(second) == [p.PubRec(1), p.PubRec(2)]


def test_dropped_qos_2_identifier_can_be_used_again() -> None:
    state = InboundQos2()
    state.pending.add(4)
    state.pending.discard(4)
    connection = MqttConnection(0.0)
    connection.receive(encode_packet(p.Connect(4, "c", clean_start=False), 4), 0.0)
    connection.accept(True, inbound_qos2=state)
    assert len(connection.receive(encode_packet(p.Publish("t", b"", qos=2, packet_id=4), 4), 1.0)) == 1


def test_repeated_identifiers_inside_a_run_arrive_once() -> None:
    connection = live(4)
    wire = b"".join(encode_packet(p.Publish("t", b"x", qos=2, packet_id=i), 4) for i in (1, 2, 1, 3, 3))
    (run,) = connection.receive(wire, 1.0)
    assert (run.packet_ids, run.wire, run.stride_bytes) == ([1, 2, 3], b"", 0)


def test_publish_beyond_receive_maximum_closes_MQTT_3_3_4_9() -> None:
    connection = live(5, offer=Offer(receive_maximum=3))
    publish = [encode_packet(p.Publish("t", b"x", qos=1, packet_id=i), 5) for i in range(1, 9)]
    assert len(flat(connection.receive(b"".join(publish[:3]), 1.0))) == 3
    connection.send_puback_run([1])
    connection.send_puback(2, c.NOT_AUTHORIZED)
    run, lost = connection.receive(b"".join(publish[3:]), 1.0)
    assert run.packet_ids == [4, 5]
    assert lost.reason_code == c.RECEIVE_MAXIMUM_EXCEEDED


def test_receive_maximum_counts_qos_2_until_pubcomp() -> None:
    connection = live(5, offer=Offer(receive_maximum=2))
    connection.receive(qos2(1, 2), 1.0)
    connection.send_pubrec(1, c.NOT_AUTHORIZED)
    connection.send_pubrec(2)
    assert len(connection.receive(qos2(3), 1.0)) == 1
    connection.send_pubcomp_run([2])
    assert len(connection.receive(qos2(4), 1.0)) == 1
    (lost,) = connection.receive(qos2(5), 1.0)
    assert lost.reason_code == c.RECEIVE_MAXIMUM_EXCEEDED
    assert connection.inbound_qos2.pending == {3, 4}


def test_receive_maximum_is_not_enforced_in_3_1_1() -> None:
    connection = live(4, offer=Offer(receive_maximum=1))
    wire = b"".join(encode_packet(p.Publish("t", b"x", qos=1, packet_id=i), 4) for i in (1, 2, 3))
    assert len(flat(connection.receive(wire, 1.0))) == 3


def test_pubrel_is_sent_for_each_packet_id() -> None:
    connection = live(5)
    connection.send_pubrel_run([1, 2])
    connection.send_pubrel(3, 0x92)
    connection.send_pubrel_run([])
    assert sent(connection) == [p.PubRel(1), p.PubRel(2), p.PubRel(3, 0x92)]


def test_problem_information_is_left_out_on_request_MQTT_3_1_2_29() -> None:
    connection = live(5, p.Connect(5, "c", properties=Properties(request_problem_information=0)))
    why = Properties(reason_string="why", user_properties=[("k", "v")])
    connection.send_suback(1, [0], why)
    connection.disconnect(c.SERVER_BUSY, "why")
    assert sent(connection) == [
        p.SubAck(1, [0]),
        p.Disconnect(c.SERVER_BUSY, Properties(reason_string="why")),
    ]
    assert why.reason_string == "why"


def test_maximum_packet_size_trims_then_closes_MQTT_3_1_2_25() -> None:
    connection = live(5, p.Connect(5, "c", properties=Properties(maximum_packet_size_bytes=20)))
    connection.send_suback(1, [0], Properties(reason_string="x" * 30))
    assert sent(connection) == [p.SubAck(1, [0])]
    connection.send_suback(1, [0] * 30)
    assert sent(connection) == [p.Disconnect(c.PACKET_TOO_LARGE)]
    assert connection.closed
    connection.send_suback(1, [0])
    connection.send_puback_run([1])
    assert connection.output == []


@pytest.mark.parametrize("version", [4, 5])
def test_a_lone_packet_with_identifier_0_ends_the_connection(version):  # [MQTT-2.2.1-3]
    good = encode_packet(p.Publish("t", b"x", qos=1, packet_id=1), version)
    for before, wire in ((b"", b"\x40\x02\0\0"), (good, good.replace(b"t\0\x01", b"t\0\0"))):
        connection = live(version)
        connection.receive(before, 1.0)
        (lost,) = connection.receive(wire, 1.0)
        assert (type(lost), lost.reason_code) == (events.ConnectionLost, c.PROTOCOL_ERROR)
