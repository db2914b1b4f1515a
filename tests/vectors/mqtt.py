"""Named MQTT wire cases, written by hand from the specifications: bytes, version and the packet they say."""

from typing import Any, NamedTuple

from protocols.mqtt import packets as p
from protocols.mqtt.properties import Properties


class Case(NamedTuple):
    name: str
    version: int
    packet: p.Packet
    wire: bytes


class Illegal(NamedTuple):
    """Bytes a live connection must answer by closing with `reason_code`."""

    name: str
    version: int
    wire: bytes
    reason_code: int


def _case(name: str, version: int, packet: p.Packet, text: str) -> Case:
    return Case(name, version, packet, bytes.fromhex(text))


def _illegal(name: str, version: int, text: str, reason_code: int) -> Illegal:
    return Illegal(name, version, bytes.fromhex(text), reason_code)


def _request(topic_filter: str, *options: Any) -> p.SubscriptionRequest:
    return p.SubscriptionRequest(topic_filter, *options)


PACKETS = [
    _case("connect_minimal", 4, p.Connect(4, "", clean_start=True), "100c 00044d515454 04 02 0000 0000"),
    _case(
        "connect_everything",
        4,
        p.Connect(
            4,
            "ab",
            clean_start=False,
            keep_alive_s=60,
            username="u",
            password=b"p",
            will=p.Will("w", b"x", 1, True),
        ),
        "101a 00044d515454 04 ec 003c 00026162 000177 000178 000175 000170",
    ),
    _case(
        "connect_v5",
        5,
        p.Connect(
            5,
            "ab",
            keep_alive_s=10,
            properties=Properties(session_expiry_interval_s=5, receive_maximum=10),
        ),
        "1017 00044d515454 05 02 000a 08 1100000005 21000a 00026162",
    ),
    _case(
        "connect_v5_will",
        5,
        p.Connect(
            5,
            "a",
            will=p.Will(
                "w", b"x", 2, False, Properties(will_delay_interval_s=1, user_properties=[("k", "v")])
            ),
            password=b"p",
        ),
        "1024 00044d515454 05 56 0000 00 000161 0c 1800000001 2600016b000176 000177 000178 000170",
    ),
    _case("connack", 4, p.ConnAck(True, 0), "2002 0100"),
    _case("connack_refused", 4, p.ConnAck(False, 5), "2002 0005"),
    _case(
        "connack_v5",
        5,
        p.ConnAck(False, 0, Properties(topic_alias_maximum=0, maximum_packet_size_bytes=1024)),
        "200b 0000 08 220000 2700000400",
    ),
    _case("connack_v5_refused", 5, p.ConnAck(False, 0x87), "2003 008700"),
    _case("publish_qos0", 4, p.Publish("a/b", b"hi"), "3007 0003612f62 6869"),
    _case("publish_empty_payload", 4, p.Publish("a", b"", retain=True), "3103 000161"),
    _case("publish_qos1", 4, p.Publish("a", b"hi", qos=1, packet_id=10), "3207 000161 000a 6869"),
    _case(
        "publish_qos2_dup_retain",
        4,
        p.Publish("a", b"", qos=2, packet_id=0xFFFF, dup=True, retain=True),
        "3d05 000161 ffff",
    ),
    _case("publish_v5_qos0", 5, p.Publish("a", b"hi"), "3006 000161 00 6869"),
    _case(
        "publish_v5_properties",
        5,
        p.Publish(
            "a",
            b"hi",
            qos=1,
            packet_id=1,
            properties=Properties(
                payload_format_indicator=1,
                content_type="t",
                response_topic="r",
                correlation_data=b"\0",
                user_properties=[("k", "1"), ("k", "2")],
            ),
        ),
        "3224 000161 0001 1c 0101 03000174 08000172 09000100 2600016b000131 2600016b000132 6869",
    ),
    _case(
        "publish_v5_subscription_identifiers",
        5,
        p.Publish("a", b"", properties=Properties(subscription_identifiers=[1, 200])),
        "3009 000161 05 0b01 0bc801",
    ),
    _case("puback", 4, p.PubAck(1), "4002 0001"),
    _case("pubrec", 4, p.PubRec(2), "5002 0002"),
    _case("pubrel", 4, p.PubRel(3), "6202 0003"),
    _case("pubcomp", 4, p.PubComp(0x1234), "7002 1234"),
    _case("puback_v5_short", 5, p.PubAck(1), "4002 0001"),
    _case("puback_v5_reason", 5, p.PubAck(1, 0x10), "4003 0001 10"),
    _case(
        "pubrec_v5_reason_string",
        5,
        p.PubRec(1, 0x97, Properties(reason_string="no")),
        "5009 0001 97 05 1f00026e6f",
    ),
    _case("pubrel_v5_unknown", 5, p.PubRel(1, 0x92), "6203 0001 92"),
    _case("pubcomp_v5_unknown", 5, p.PubComp(1, 0x92), "7003 0001 92"),
    _case(
        "subscribe",
        4,
        p.Subscribe(1, [_request("a/+", 1), _request("#", 2)]),
        "820c 0001 0003612f2b01 00012302",
    ),
    _case(
        "subscribe_v5_options",
        5,
        p.Subscribe(1, [_request("a", 1, True, True, 2)], Properties(subscription_identifiers=[7])),
        "8209 0001 02 0b07 000161 2d",
    ),
    _case("suback", 4, p.SubAck(1, [0, 1, 2, 0x80]), "9006 0001 00010280"),
    _case("suback_v5", 5, p.SubAck(1, [2, 0x87]), "9005 0001 00 0287"),
    _case("unsubscribe", 4, p.Unsubscribe(1, ["a", "b"]), "a208 0001 000161 000162"),
    _case(
        "unsubscribe_v5",
        5,
        p.Unsubscribe(1, ["a"], Properties(user_properties=[("k", "v")])),
        "a20d 0001 07 2600016b000176 000161",
    ),
    _case("unsuback", 4, p.UnsubAck(1, []), "b002 0001"),
    _case("unsuback_v5", 5, p.UnsubAck(1, [0, 0x11]), "b005 0001 00 0011"),
    _case("pingreq", 4, p.PingReq(), "c000"),
    _case("pingresp", 5, p.PingResp(), "d000"),
    _case("disconnect", 4, p.Disconnect(), "e000"),
    _case("disconnect_v5", 5, p.Disconnect(), "e000"),
    _case("disconnect_v5_will", 5, p.Disconnect(4), "e001 04"),
    _case(
        "disconnect_v5_expiry",
        5,
        p.Disconnect(4, Properties(session_expiry_interval_s=1)),
        "e007 04 05 1100000001",
    ),
    _case("auth_v5", 5, p.Auth(0x18, Properties(authentication_method="m")), "f006 18 04 1500016d"),
]

# Longer forms that mean the same as the shortest one; decoded only.
LONG_FORMS = [
    _case("puback_v5_explicit_success", 5, p.PubAck(1), "4003 0001 00"),
    _case("puback_v5_empty_properties", 5, p.PubAck(1), "4004 0001 00 00"),
    _case("disconnect_v5_empty_properties", 5, p.Disconnect(), "e002 00 00"),
]

ILLEGAL = [
    _illegal("second_connect_MQTT_3_1_0_2", 5, "100d 00044d515454 05 02 0000 00 0000", 0x82),
    _illegal("connack_from_client", 5, "2003 000000", 0x82),
    _illegal("suback_from_client", 5, "9004 0001 00 00", 0x82),
    _illegal("unsuback_from_client", 5, "b004 0001 00 00", 0x82),
    _illegal("pingresp_from_client", 5, "d000", 0x82),
    _illegal("auth_without_method_4_12", 5, "f000", 0x82),
    _illegal("reserved_type_0", 5, "0000", 0x81),
    _illegal("auth_is_reserved_in_3_1_1", 4, "f000", 0x81),
    _illegal("pingreq_flags_MQTT_2_1_3_1", 5, "c100", 0x81),
    _illegal("pingreq_with_body", 5, "c001 00", 0x81),
    _illegal("remaining_length_5_bytes", 5, "30ffffffff01", 0x81),
    _illegal("remaining_length_not_shortest_MQTT_1_5_5_1", 5, "c08000", 0x81),
    _illegal("packet_too_large", 5, "30ffffff7f", 0x95),
    _illegal("publish_qos_3_MQTT_3_3_1_4", 5, "3606 000161 0001 00", 0x81),
    _illegal("publish_dup_qos_0_MQTT_3_3_1_2", 5, "3804 000161 00", 0x81),
    _illegal("publish_packet_id_0_MQTT_2_2_1_3", 5, "3206 000161 0000 00", 0x82),
    _illegal("publish_wildcard_MQTT_3_3_2_2", 5, "3006 0003612f2b 00", 0x90),
    _illegal("publish_hash_MQTT_3_3_2_2", 4, "3003 000123", 0x90),
    _illegal("publish_empty_topic_3_3_2_1", 5, "3003 0000 00", 0x82),
    _illegal("publish_topic_not_utf8_MQTT_1_5_4_1", 5, "3004 0001ff 00", 0x81),
    _illegal("publish_topic_surrogate_MQTT_1_5_4_1", 5, "3006 0003eda080 00", 0x81),
    _illegal("publish_topic_nul_MQTT_1_5_4_2", 5, "3004 000100 00", 0x81),
    _illegal("publish_cut_short", 5, "3003 000161", 0x81),
    _illegal("publish_topic_beyond_packet", 4, "3003 000561", 0x81),
    _illegal("publish_properties_beyond_packet", 5, "3005 000161 05 00", 0x81),
    _illegal("publish_topic_alias_MQTT_3_3_2_9", 5, "3007 000161 03 230401", 0x94),
    _illegal("publish_topic_alias_0_MQTT_3_3_2_8", 5, "3007 000161 03 230000", 0x94),
    _illegal("publish_topic_alias_for_nothing_yet", 5, "3006 0000 03 230001", 0x82),
    _illegal("publish_subscription_identifier_MQTT_3_3_4_6", 5, "3006 000161 02 0b01", 0x82),
    _illegal("publish_unknown_property", 5, "3006 000161 02 7f01", 0x81),
    _illegal("publish_property_of_another_packet", 5, "3007 000161 03 210001", 0x81),
    _illegal("publish_property_twice", 5, "3008 000161 04 0101 0101", 0x82),
    _illegal("publish_format_indicator_2", 5, "3006 000161 02 0102", 0x82),
    _illegal("publish_response_topic_wildcard_MQTT_3_3_2_14", 5, "3008 000161 04 08000123", 0x82),
    _illegal("puback_packet_id_0", 5, "4002 0000", 0x82),
    _illegal("puback_flags", 5, "4102 0001", 0x81),
    _illegal("puback_cut_short", 5, "4001 00", 0x81),
    _illegal("puback_longer_in_3_1_1", 4, "4003 0001 00", 0x81),
    _illegal("puback_reason_code_MQTT_3_4_2_1", 5, "4003 0001 92", 0x82),
    _illegal("pubrel_flags_MQTT_3_6_1_1", 5, "6002 0001", 0x81),
    _illegal("pubcomp_reason_code_MQTT_3_7_2_1", 5, "7003 0001 80", 0x82),
    _illegal("subscribe_flags_MQTT_3_8_1_1", 5, "8007 0001 00 000161 00", 0x81),
    _illegal("subscribe_packet_id_0", 5, "8207 0000 00 000161 00", 0x82),
    _illegal("subscribe_empty_MQTT_3_8_3_2", 5, "8203 0001 00", 0x82),
    _illegal("subscribe_without_options", 5, "8206 0001 00 000161", 0x81),
    _illegal("subscribe_qos_3", 5, "8207 0001 00 000161 03", 0x82),
    _illegal("subscribe_reserved_bits_MQTT_3_8_3_5", 5, "8207 0001 00 000161 40", 0x81),
    _illegal("subscribe_reserved_bits_in_3_1_1", 4, "8206 0001 000161 04", 0x81),
    _illegal("subscribe_retain_handling_3", 5, "8207 0001 00 000161 30", 0x82),
    _illegal("subscribe_filter_MQTT_4_7_1_1", 5, "8209 0001 00 0003612362 00", 0x8F),
    _illegal("subscribe_filter_MQTT_4_7_1_2", 4, "8207 0001 0002612b 00", 0x8F),
    _illegal("subscribe_empty_filter_MQTT_4_7_3_1", 5, "8206 0001 00 0000 00", 0x8F),
    _illegal("subscribe_identifier_0", 5, "8209 0001 02 0b00 000161 00", 0x82),
    _illegal("subscribe_identifier_twice", 5, "820b 0001 04 0b01 0b02 000161 00", 0x82),
    _illegal("shared_no_local_MQTT_3_8_3_4", 5, "8210 0001 00 000a 2473686172652f672f61 04", 0x82),
    _illegal("shared_name_wildcard_MQTT_4_8_2_1", 5, "8210 0001 00 000a 2473686172652f2b2f61 00", 0x8F),
    _illegal("shared_without_filter_MQTT_4_8_2_2", 5, "820e 0001 00 0008 2473686172652f67 00", 0x8F),
    _illegal("unsubscribe_flags_MQTT_3_10_1_1", 5, "a006 0001 00 000161", 0x81),
    _illegal("unsubscribe_empty_MQTT_3_10_3_2", 4, "a202 0001", 0x82),
    _illegal("disconnect_with_body_in_3_1_1", 4, "e001 00", 0x81),
    _illegal("disconnect_flags", 5, "e100", 0x81),
    _illegal("disconnect_server_reason", 5, "e001 8d", 0x82),
    _illegal("disconnect_raises_expiry_3_14_2_2_2", 5, "e007 00 05 1100000001", 0x82),
]

# CONNECTs refused before any front-end hears of them: bytes and the exact answer, b"" for silence.
REFUSED = [
    ("not_connect_first_MQTT_3_1_0_1", "c000", ""),
    ("not_mqtt_at_all", "474554202f20", ""),
    ("wrong_protocol_name_MQTT_3_1_2_1", "100c 00044d515458 04 02 0000 0000", ""),
    ("empty_client_id_in_mqtt_3_1", "100e 00064d5149736470 03 02 0000 0000", "20020002"),
    ("level_4_of_mqisdp", "100e 00064d5149736470 04 02 0000 0000", "20020001"),
    ("level_3_MQTT_3_1_2_2", "100c 00044d515454 03 02 0000 0000", "20020001"),
    ("bridge_level_0x84", "100c 00044d515454 84 02 0000 0000", "20020001"),
    ("reserved_flag_MQTT_3_1_2_3", "100c 00044d515454 04 03 0000 0000", ""),
    ("empty_client_id_kept_session_MQTT_3_1_3_8", "100c 00044d515454 04 00 0000 0000", "20020002"),
    ("password_alone_in_3_1_1_MQTT_3_1_2_22", "100f 00044d515454 04 42 0000 0000 000170", ""),
    ("trailing_bytes", "100d 00044d515454 04 02 0000 0000 00", ""),
    ("connect_flags", "110c 00044d515454 04 02 0000 0000", ""),
    ("will_qos_without_will", "100c 00044d515454 04 0a 0000 0000", ""),
    ("will_wildcard", "1012 00044d515454 04 06 0000 0000 00012b 000178", ""),
]
REFUSED_V5 = [
    ("level_6_MQTT_3_1_2_2", "100d 00044d515454 06 02 0000 00 0000", 0x84),
    ("reserved_flag_MQTT_3_1_2_3", "100d 00044d515454 05 03 0000 00 0000", 0x81),
    ("will_qos_3_MQTT_3_1_2_12", "100d 00044d515454 05 1e 0000 00 0000", 0x81),
    ("receive_maximum_0", "1010 00044d515454 05 02 0000 03 210000 0000", 0x82),
    ("maximum_packet_size_0", "1012 00044d515454 05 02 0000 05 2700000000 0000", 0x82),
    ("property_twice", "1013 00044d515454 05 02 0000 06 210001 210001 0000", 0x82),
    ("property_not_for_connect", "100f 00044d515454 05 02 0000 02 2400 0000", 0x81),
    ("authentication_data_without_a_method", "1011 00044d515454 05 02 0000 04 1600016d 0000", 0x82),
    ("authentication_data_alone", "1011 00044d515454 05 02 0000 04 1600016d 0000", 0x82),
    ("client_id_not_utf8", "100e 00044d515454 05 02 0000 00 0001ff", 0x81),
    ("will_wildcard", "1014 00044d515454 05 06 0000 00 0000 00 00012b 000178", 0x90),
]
