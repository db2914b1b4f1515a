"""AMQP 0.9.1 bytes written out by hand from the specification, and what a broker must make of them."""

from typing import Final

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT: Final = bytes.fromhex("08 0000 00000000 ce")

# connection.start-ok, mechanism PLAIN, response \0guest\0guest, locale en_US, no client properties
START_OK: Final = (
    bytes.fromhex("01 0000 00000024 000a 000b 00000000 05")
    + b"PLAIN"
    + bytes.fromhex("0000000c")
    + b"\0guest\0guest"
    + bytes.fromhex("05")
    + b"en_US"
    + b"\xce"
)
# channel_max 2047, frame_max 131072, heartbeat 60
TUNE_OK: Final = bytes.fromhex("01 0000 0000000c 000a 001f 07ff 00020000 003c ce")
# virtual host /
OPEN: Final = bytes.fromhex("01 0000 00000008 000a 0028 01 2f 00 00 ce")
CONNECTION_CLOSE: Final = bytes.fromhex("01 0000 0000000d 000a 0032 00c8 02 6f6b 0000 0000 ce")
CONNECTION_CLOSE_OK: Final = bytes.fromhex("01 0000 00000004 000a 0033 ce")

CHANNEL_1_OPEN: Final = bytes.fromhex("01 0001 00000005 0014 000a 00 ce")
CHANNEL_1_CLOSE: Final = bytes.fromhex("01 0001 0000000b 0014 0028 00c8 00 0000 0000 ce")
CHANNEL_1_CLOSE_OK: Final = bytes.fromhex("01 0001 00000004 0014 0029 ce")

# basic.publish to the default exchange, routing key q
PUBLISH_Q: Final = bytes.fromhex("01 0001 0000000a 003c 0028 0000 00 01 71 00 ce")
PUBLISH_Q_MANDATORY: Final = bytes.fromhex("01 0001 0000000a 003c 0028 0000 00 01 71 01 ce")
PUBLISH_Q_IMMEDIATE: Final = bytes.fromhex("01 0001 0000000a 003c 0028 0000 00 01 71 02 ce")
# body of 5 bytes, delivery_mode 2
HEADER_5: Final = bytes.fromhex("02 0001 0000000f 003c 0000 0000000000000005 1000 02 ce")
HEADER_0: Final = bytes.fromhex("02 0001 0000000e 003c 0000 0000000000000000 0000 ce")
BODY_HELLO: Final = bytes.fromhex("03 0001 00000005") + b"hello" + b"\xce"
HELLO_TO_Q: Final = PUBLISH_Q + HEADER_5 + BODY_HELLO

ACK_7: Final = bytes.fromhex("01 0001 0000000d 003c 0050 0000000000000007 00 ce")
ACK_7_MULTIPLE: Final = bytes.fromhex("01 0001 0000000d 003c 0050 0000000000000007 01 ce")
NACK_7: Final = bytes.fromhex("01 0001 0000000d 003c 0078 0000000000000007 00 ce")
NACK_7_MULTIPLE_REQUEUE: Final = bytes.fromhex("01 0001 0000000d 003c 0078 0000000000000007 03 ce")
REJECT_7_REQUEUE: Final = bytes.fromhex("01 0001 0000000d 003c 005a 0000000000000007 01 ce")

# consumer tag c, tag 1, not redelivered, default exchange, routing key q; content as HELLO_TO_Q
DELIVER_HELLO: Final = (
    bytes.fromhex("01 0001 00000012 003c 003c 01 63 0000000000000001 00 00 01 71 ce") + HEADER_5 + BODY_HELLO
)

# one table entry of every field type, by its octet
TABLE_ENTRIES: Final[dict[str, bytes]] = {
    "t": bytes.fromhex("01 6b 74 01"),
    "b": bytes.fromhex("01 6b 62 ff"),
    "B": bytes.fromhex("01 6b 42 ff"),
    "s": bytes.fromhex("01 6b 73 fffe"),
    "u": bytes.fromhex("01 6b 75 fffe"),
    "I": bytes.fromhex("01 6b 49 fffffffe"),
    "i": bytes.fromhex("01 6b 69 fffffffe"),
    "l": bytes.fromhex("01 6b 6c fffffffffffffffe"),
    "L": bytes.fromhex("01 6b 4c fffffffffffffffe"),
    "f": bytes.fromhex("01 6b 66 3fc00000"),
    "d": bytes.fromhex("01 6b 64 3ff8000000000000"),
    "D": bytes.fromhex("01 6b 44 02 0000007b"),
    "S": bytes.fromhex("01 6b 53 00000002 6162"),
    "A": bytes.fromhex("01 6b 41 00000004 7401 6205"),
    "T": bytes.fromhex("01 6b 54 0000000065000000"),
    "F": bytes.fromhex("01 6b 46 00000004 01 61 74 00"),
    "V": bytes.fromhex("01 6b 56"),
    "x": bytes.fromhex("01 6b 78 00000002 00ff"),
    "\0": bytes.fromhex("01 6b 00"),
}


def _frame(kind: int, channel: int, payload: str) -> bytes:
    raw = bytes.fromhex(payload)
    return bytes([kind]) + channel.to_bytes(2, "big") + len(raw).to_bytes(4, "big") + raw + b"\xce"


# what a client may not send on a running connection with channel 1 open (frame_max 4096, channel_max 8), and
# the reply code of connection.close; the clauses are those of the specification
CONNECTION_ERRORS: Final[dict[str, tuple[bytes, int]]] = {
    "2.3.5 frame above frame_max": (bytes.fromhex("03 0001 00001001"), 501),
    "2.3.5 wrong frame end": (CHANNEL_1_CLOSE[:-1] + b"\xcd", 501),
    "4.2.3 unknown frame type": (bytes.fromhex("07 0001 00000000 ce"), 501),
    "4.2.3 frame type 0": (bytes(8), 501),
    "4.2.3 heartbeat on a channel": (bytes.fromhex("08 0001 00000000 ce"), 505),
    "4.2.3 connection class on a channel": (_frame(1, 1, "000a 0033"), 503),
    "4.2.3 channel class on channel 0": (_frame(1, 0, "0014 000a 00"), 504),
    "heartbeat with a payload": (_frame(8, 0, "00"), 501),
    "method frame without a method": (_frame(1, 1, "003c"), 502),
    "method frame on channel 0 without a method": (_frame(1, 0, ""), 502),
    "unknown class": (_frame(1, 1, "0063 000a"), 540),
    "unknown method": (_frame(1, 1, "003c 00ff"), 540),
    "unknown method on channel 0": (_frame(1, 0, "000a 00ff"), 540),
    "server method: basic.deliver": (_frame(1, 1, "003c 003c 00 0000000000000001 00 00 00"), 503),
    "server method: connection.tune": (_frame(1, 0, "000a 001e 0000 00000000 0000"), 504),
    "start-ok twice": (START_OK, 504),
    "open twice": (OPEN, 504),
    "close-ok nobody asked for": (CONNECTION_CLOSE_OK, 504),
    "channel.close-ok nobody asked for": (CHANNEL_1_CLOSE_OK, 503),
    "channel opened twice": (CHANNEL_1_OPEN, 504),
    "method on a channel that is not open": (_frame(1, 2, "003c 000a 00000000 0001 00"), 504),
    "publish on a channel that is not open": (_frame(1, 2, "003c 0028 0000 00 01 71 00"), 504),
    "ack on a channel that is not open": (_frame(1, 2, "003c 0050 0000000000000007 00"), 504),
    "header on a channel that is not open": (_frame(2, 2, "003c 0000 0000000000000005 0000"), 504),
    "4.2.6.1 content header on channel 0": (_frame(2, 0, "003c 0000 0000000000000005 0000"), 505),
    "4.2.6.1 body on channel 0": (_frame(3, 0, "00"), 505),
    "4.2.6 header without publish": (HEADER_5, 505),
    "4.2.6 body without header": (BODY_HELLO, 505),
    "4.2.6 body instead of header": (PUBLISH_Q + BODY_HELLO, 505),
    "4.2.6 method instead of header": (PUBLISH_Q + ACK_7, 505),
    "4.2.6 publish instead of header": (PUBLISH_Q + PUBLISH_Q, 505),
    "4.2.6 method instead of body": (PUBLISH_Q + HEADER_5 + CHANNEL_1_CLOSE, 505),
    "4.2.6 header instead of body": (PUBLISH_Q + HEADER_5 + HEADER_5, 505),
    "4.2.6 wrong class in header": (
        PUBLISH_Q + _frame(2, 1, "0032 0000 0000000000000005 0000") + BODY_HELLO,
        505,
    ),
    "4.2.6 weight": (PUBLISH_Q + _frame(2, 1, "003c 0001 0000000000000005 0000") + BODY_HELLO, 505),
    "4.2.6 body longer than announced": (PUBLISH_Q + HEADER_5 + _frame(3, 1, "0102030405 06"), 505),
    "header cut off": (PUBLISH_Q + _frame(2, 1, "003c 0000 0000000000000005 00") + BODY_HELLO, 502),
    "header almost empty": (PUBLISH_Q + _frame(2, 1, "003c") + BODY_HELLO, 502),
    "property missing": (PUBLISH_Q + _frame(2, 1, "003c 0000 0000000000000005 1000") + BODY_HELLO, 502),
    "property too many": (PUBLISH_Q + _frame(2, 1, "003c 0000 0000000000000005 0000 01") + BODY_HELLO, 502),
    "unknown property flag": (PUBLISH_Q + _frame(2, 1, "003c 0000 0000000000000005 0002") + BODY_HELLO, 502),
    "headers cut off": (
        PUBLISH_Q + _frame(2, 1, "003c 0000 0000000000000005 2000 00000005 01 6b 53 00") + BODY_HELLO,
        502,
    ),
    "headers with an unknown field type": (
        PUBLISH_Q + _frame(2, 1, "003c 0000 0000000000000005 2000 00000004 01 6b 5a 00") + BODY_HELLO,
        502,
    ),
    "publish cut off": (_frame(1, 1, "003c 0028 0000 00 01"), 502),
    "publish with bytes left over": (_frame(1, 1, "003c 0028 0000 00 01 71 00 00"), 502),
    "routing key is not UTF-8": (_frame(1, 1, "003c 0028 0000 00 01 ff 00"), 502),
    "exchange is not UTF-8": (_frame(1, 1, "003c 0028 0000 01 ff 00 00"), 502),
    "queue name is not UTF-8": (_frame(1, 1, "0032 000a 0000 01 ff 00 00000000"), 502),
    "queue.declare arguments cut off": (_frame(1, 1, "0032 000a 0000 00 00 00000004"), 502),
    "ack cut off": (_frame(1, 1, "003c 0050 00000000000000"), 502),
    "immediate": (PUBLISH_Q_IMMEDIATE + HEADER_5 + BODY_HELLO, 540),
}
