"""Wire values of MQTT 3.1.1 and 5.

Sections named in this package are those of "MQTT Version 5.0" (OASIS, 2019) unless said otherwise; clauses
in brackets, such as [MQTT-3.1.0-1], are its normative statements.
"""

from typing import Final

MQTT_3_1_1: Final = 4
MQTT_5: Final = 5

# control packet types, section 2.1.2
CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15
WILL: Final = 0  # no packet: the will's own property block inside CONNECT

LONE_ACK_BYTES: Final = 4  # of an acknowledgement without reason code or properties
PUBACK_HEAD: Final = bytes((PUBACK << 4, 2))  # of one

# The low four bits of the first byte that each packet must carry, section 2.1.3 (PUBLISH uses them all).
FLAGS_BY_TYPE: Final = (0, 0, 0, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0, 0, 0)

PACKET_NAMES: Final = (
    "reserved",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
)

REMAINING_LENGTH_MAX: Final = 268_435_455  # four bytes of seven bits, section 1.5.5

# reason codes, section 2.4
SUCCESS: Final = 0x00
DISCONNECT_WITH_WILL: Final = 0x04
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION_EXISTED: Final = 0x11
CONTINUE_AUTHENTICATION: Final = 0x18
REAUTHENTICATE: Final = 0x19
UNSPECIFIED_ERROR: Final = 0x80
MALFORMED_PACKET: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
IMPLEMENTATION_SPECIFIC_ERROR: Final = 0x83
UNSUPPORTED_PROTOCOL_VERSION: Final = 0x84
CLIENT_IDENTIFIER_NOT_VALID: Final = 0x85
BAD_USER_NAME_OR_PASSWORD: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
SERVER_UNAVAILABLE: Final = 0x88
SERVER_BUSY: Final = 0x89
BANNED: Final = 0x8A
SERVER_SHUTTING_DOWN: Final = 0x8B
BAD_AUTHENTICATION_METHOD: Final = 0x8C
KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
TOPIC_FILTER_INVALID: Final = 0x8F
TOPIC_NAME_INVALID: Final = 0x90
PACKET_IDENTIFIER_NOT_FOUND: Final = 0x92
RECEIVE_MAXIMUM_EXCEEDED: Final = 0x93
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
MESSAGE_RATE_TOO_HIGH: Final = 0x96
QUOTA_EXCEEDED: Final = 0x97
ADMINISTRATIVE_ACTION: Final = 0x98
PAYLOAD_FORMAT_INVALID: Final = 0x99
RETAIN_NOT_SUPPORTED: Final = 0x9A
QOS_NOT_SUPPORTED: Final = 0x9B
USE_ANOTHER_SERVER: Final = 0x9C
CONNECTION_RATE_EXCEEDED: Final = 0x9F

# 3.1.1 CONNACK return codes (MQTT 3.1.1, section 3.2.2.3) for the reason codes that have one of their own
RETURN_CODE_BY_REASON: Final = {
    UNSUPPORTED_PROTOCOL_VERSION: 1,
    CLIENT_IDENTIFIER_NOT_VALID: 2,
    BAD_USER_NAME_OR_PASSWORD: 4,
    NOT_AUTHORIZED: 5,
    BANNED: 5,
    BAD_AUTHENTICATION_METHOD: 5,
}
RETURN_CODE_OTHERWISE: Final = 3  # "server unavailable"

# Reason codes by packet type: sections 3.2.2.2, 3.4.2.1, 3.5.2.1, 3.6.2.1, 3.7.2.1, 3.14.2.1, 3.15.2.1
_PUBLISH_ANSWERS: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
CLIENT_DISCONNECT_REASONS: Final = frozenset(
    {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99}
)
SERVER_DISCONNECT_REASONS: Final = frozenset(
    {0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90} | set(range(0x93, 0xA3))
)
CONNACK_REASONS: Final = frozenset(
    {0x00, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F} | set(range(0x80, 0x8B)) | {0x8C}
)
REASON_CODES_BY_TYPE: Final = {
    PUBACK: _PUBLISH_ANSWERS,
    PUBREC: _PUBLISH_ANSWERS,
    PUBREL: frozenset({0x00, 0x92}),
    PUBCOMP: frozenset({0x00, 0x92}),
    DISCONNECT: CLIENT_DISCONNECT_REASONS | SERVER_DISCONNECT_REASONS,
    AUTH: frozenset({0x00, 0x18, 0x19}),
}

CONNECT_FLAG_RESERVED: Final = 0x01
CONNECT_FLAG_CLEAN_START: Final = 0x02
CONNECT_FLAG_WILL: Final = 0x04
CONNECT_FLAG_WILL_RETAIN: Final = 0x20
CONNECT_FLAG_PASSWORD: Final = 0x40
CONNECT_FLAG_USERNAME: Final = 0x80

WEBSOCKET_SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")  # [MQTT-6.0.0-3], and what MQTT 3.1 used
SHARED_PREFIX: Final = "$share/"
