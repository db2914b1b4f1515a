"""Requests to `/management`: read off messages, and answered by messages."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from broker.properties.amqp10 import neutral
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.errors import AmqpError

OK: Final = 200
CREATED: Final = 201
NO_CONTENT: Final = 204
BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
NOT_ALLOWED: Final = 405
CONFLICT: Final = 409
TOO_MUCH: Final = 429

REPLY_TO: Final = "$me"

_PROPERTIES: Final = 0x73
_APPLICATION_PROPERTIES: Final = 0x74
_DATA: Final = 0x75
_VALUE: Final = 0x77
_VERSION: Final = t.encode_value(t.Described(t.ULong(_APPLICATION_PROPERTIES), {"http:response": "1.1"}))


class Request(NamedTuple):
    """A request: `method` of HTTP, path with its query, body as plain values."""

    message_id: Any
    method: str
    path: str
    body: Any


class Refused(Exception):
    """A request cannot be had: a status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Answer(NamedTuple):
    """The answer to a request; the body is encoded as AMQP 1.0 has it."""

    status: int
    body: Any = None


def read_request(payload: bytes) -> Request:
    """Read a request; raises AmqpError for what is no message, Refused for what is no request."""
    properties = p.Properties()
    body: Any = None
    at = 0
    while at < len(payload):
        section, at = t.decode_value(payload, at, len(payload))
        if type(section) is not t.Described:
            raise AmqpError("amqp:decode-error", "a section has no descriptor")
        code = section.descriptor
        if code == _PROPERTIES:
            composed = p.compose(section)
            assert isinstance(composed, p.Properties)
            properties = composed
        elif code in (_VALUE, _DATA):
            body = section.value if isinstance(section.value, bytes) else neutral(section.value)
    if properties.reply_to != REPLY_TO:
        raise Refused(BAD_REQUEST, f"the reply-to of a request is {REPLY_TO}")
    if not properties.subject or not isinstance(properties.to, str):
        raise Refused(BAD_REQUEST, "a request has a method as subject and a path as to")
    return Request(properties.message_id, properties.subject, properties.to, body)


def message_id_of(payload: bytes) -> Any:
    """Return what a request is known by to its client, as far as it can be read."""
    try:
        at = 0
        while at < len(payload):
            section, at = t.decode_value(payload, at, len(payload))
            if section.descriptor == _PROPERTIES:
                return p.compose(section).message_id
    except (AmqpError, AttributeError):
        pass
    return None


def write_answer(message_id: Any, answer: Answer) -> bytes:
    """Return an answer as a message."""
    properties = p.Properties(subject=str(answer.status), correlation_id=message_id)
    value = t.encode_value(t.Described(t.ULong(_VALUE), answer.body))
    return p.encode(properties) + _VERSION + value
