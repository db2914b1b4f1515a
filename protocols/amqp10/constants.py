"""Wire values of AMQP 1.0: protocol headers, frames, error conditions, descriptors."""

from typing import Final

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
PROTOCOL_HEADER_BYTES: Final = 8

FRAME_HEAD_BYTES: Final = 8
FRAME_AMQP: Final = 0
FRAME_SASL: Final = 1
DOFF_MIN: Final = 2  # in words of four octets
HEARTBEAT_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
FRAME_BYTES_MIN: Final = 512  # the smallest max-frame-size (2.8.19, MIN-MAX-FRAME-SIZE)
UINT_MAX: Final = 0xFFFFFFFF

# error conditions (2.8.15 to 2.8.18, 4.5.8)
INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED_ACCESS: Final = "amqp:unauthorized-access"
DECODE_ERROR: Final = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
DETACH_FORCED: Final = "amqp:link:detach-forced"
CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
WINDOW_VIOLATION: Final = "amqp:session:window-violation"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
UNKNOWN_TRANSACTION: Final = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK: Final = "amqp:transaction:rollback"

# roles (2.8.1)
SENDER: Final = False
RECEIVER: Final = True

# settle modes (2.8.2, 2.8.3)
SENDER_UNSETTLED: Final = 0
SENDER_SETTLED: Final = 1
SENDER_MIXED: Final = 2
RECEIVER_FIRST: Final = 0
RECEIVER_SECOND: Final = 1

WEBSOCKET_SUBPROTOCOLS: Final = ("amqp",)  # AMQP WebSocket Binding 1.0, 2.1

# outcomes of SASL (5.3.3.6)
SASL_OK: Final = 0
SASL_AUTH: Final = 1
