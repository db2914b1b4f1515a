"""Wire values of AMQP 0.9.1: frames, reply codes and the methods the hot paths know by number."""

from typing import Any, Final

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_END_BYTE: Final = b"\xce"
FRAME_HEAD_BYTES: Final = 7
FRAME_OVERHEAD_BYTES: Final = 8  # head and end octet; frame_max counts them
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

CLASS_CONNECTION: Final = 10
CLASS_BASIC: Final = 60

# method numbers as pamqp indexes them: class id in the high 16 bits
CONNECTION_START_OK: Final = 0x000A000B
CONNECTION_TUNE_OK: Final = 0x000A001F
CONNECTION_OPEN: Final = 0x000A0028
CONNECTION_CLOSE: Final = 0x000A0032
CONNECTION_UPDATE_SECRET: Final = 0x000A0046
CHANNEL_OPEN: Final = 0x0014000A
CHANNEL_CLOSE: Final = 0x00140028
CHANNEL_CLOSE_OK: Final = 0x00140029
BASIC_CANCEL_OK: Final = 0x003C001F
BASIC_PUBLISH: Final = 0x003C0028
BASIC_ACK: Final = 0x003C0050
BASIC_REJECT: Final = 0x003C005A
BASIC_NACK: Final = 0x003C0078

REPLY_SUCCESS: Final = 200
CONTENT_TOO_LARGE: Final = 311
NO_ROUTE: Final = 312
NO_CONSUMERS: Final = 313
CONNECTION_FORCED: Final = 320
INVALID_PATH: Final = 402
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541

REPLY_NAMES: Final[dict[int, str]] = {
    REPLY_SUCCESS: "OK",
    CONTENT_TOO_LARGE: "CONTENT_TOO_LARGE",
    NO_ROUTE: "NO_ROUTE",
    NO_CONSUMERS: "NO_CONSUMERS",
    CONNECTION_FORCED: "CONNECTION_FORCED",
    INVALID_PATH: "INVALID_PATH",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}

# connection.start tells clients what they may rely on; the front-end may add to a copy
CAPABILITIES: Final[dict[str, Any]] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


def reply_text(code: int, text: str) -> str:
    """Return the reply text that clients know from other brokers, `NOT_FOUND - no queue 'x'`, cut to a short
    string.
    """
    full = f"{REPLY_NAMES.get(code, 'ERROR')} - {text}"
    return full.encode()[:255].decode(errors="ignore")
