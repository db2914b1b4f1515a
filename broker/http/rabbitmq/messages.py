"""Publishing and getting messages by RabbitMQ's API."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from broker.access.rights import Action, Kind
from broker.engine.traffic import Message
from broker.http import values
from broker.http.problems import Problem
from broker.http.rabbitmq.asking import Asking, Calls, answer, no_exchange, no_queue, table
from broker.http.rabbitmq.queues import exchange_name
from broker.http.station import Delivery, Station
from broker.http.values import BASE64, TEXT, plain
from broker.properties import amqp
from broker.properties.templates import as_amqp
from config import limits
from queue_manager.api import OPERATOR
from queue_manager.errors import ExchangeNotFound, QueueNotFound

_STRING: Final = "string"  # as RabbitMQ calls text
_SETTLE: Final = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")


calls: Final = Calls()


@calls.add("POST", "/exchanges/{vhost}/{exchange}/publish")
async def publish(asking: Asking) -> Response:
    """Publish one message to an exchange; tells whether it went to a queue."""
    place, identity = asking.entered()
    body = await asking.body(
        "routing_key", "payload", "payload_encoding", bytes_max=2 * limits.MESSAGE_BYTES_DEFAULT_MAX
    )
    payload = _payload(body["payload"], body["payload_encoding"])
    key = body["routing_key"]
    if not isinstance(key, str):
        raise Problem(400, "bad_request", "routing_key is text")
    exchange = exchange_name(asking)
    fields = {**table(body.get("properties"), "properties")}
    headers = table(fields.pop("headers", None), "headers")
    persistent = fields.pop("delivery_mode", 1) == 2
    unknown = set(fields) - set(amqp.FIELDS)
    if unknown:
        raise Problem(400, "bad_request", f"unknown properties: {', '.join(sorted(unknown))}")
    try:
        published = await place.admin.publish_to_exchange(
            exchange, key, payload, headers=headers, persistent=persistent, publisher=identity, **fields
        )
    except ExchangeNotFound as error:
        reason = f"404 NOT_FOUND - {no_exchange(error, place.vhost).reason}"
        raise Problem(400, "bad_request", reason) from None
    return answer({"routed": published.is_routed})


@calls.add("POST", "/queues/{vhost}/{queue}/get")
async def get(asking: Asking) -> Response:
    """Take messages of a queue, and settle them or put them back at once."""
    place, identity = asking.entered()
    name = asking.part("queue")
    identity.check(Action.READ, Kind.QUEUE, name)
    body = await asking.body("count", "ackmode", "encoding")
    mode, count, encoding = body["ackmode"], _count(body["count"]), body["encoding"]
    if mode not in _SETTLE:
        raise Problem(400, "bad_request", f"ackmode is one of {', '.join(_SETTLE)}")
    if encoding not in ("auto", "base64"):
        raise Problem(400, "bad_request", "encoding is auto or base64")
    truncate = _count(body["truncate"]) if "truncate" in body else None
    hub = place.hub
    try:
        queue = hub.client.consuming.find(name)
    except QueueNotFound as error:
        raise Problem(404, "not_found", f"NOT_FOUND - {no_queue(error, place.vhost).reason}") from None
    station = Station(hub, queue, "", tells_offsets=False)
    found: list[Delivery] = []
    try:
        while len(found) < count and (more := await station.fetch(count - len(found))):
            found += more
    finally:
        station.close()
    left = (await hub.client.queues.look(name, OPERATOR)).ready
    told = [_told(each, left, encoding, truncate) for each in found]
    claims = [claim for _, claim in found]
    now_ms = hub.clock.now_ms()
    if mode == "ack_requeue_false":
        hub.client.settling.ack(claims, now_ms)
    elif mode == "reject_requeue_false":
        hub.client.settling.reject(claims, now_ms)
    else:
        hub.client.settling.requeue(claims, now_ms, delay_ms=0)
    await hub.client.commits.durable()
    return answer(told)


def _count(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Problem(400, "bad_request", "a count is a number from 1")
    return min(value, limits.RABBITMQ_GET_MESSAGES_MAX)


def _payload(payload: Any, encoding: Any) -> bytes:
    if not isinstance(payload, str):
        raise Problem(400, "bad_request", "payload is text")
    if encoding not in (_STRING, BASE64):
        raise Problem(400, "bad_request", f'["unsupported_encoding","{encoding}"]')
    return values.payload(payload, TEXT if encoding == _STRING else BASE64)


def _told(delivery: Delivery, left: int, encoding: str, truncate: int | None) -> dict[str, Any]:
    message, claim = delivery
    body = message.body or b""
    shown = body if truncate is None else body[:truncate]
    text, kind = values.shown(shown) if encoding == "auto" else values.as_base64(shown)
    properties = _properties(message)
    return {
        "payload_bytes": len(body),
        "redelivered": claim.attempts > 1,
        "exchange": message.template.exchange,
        "routing_key": amqp.routing_key(message.template.topic),
        "message_count": left,
        "properties": properties or [],
        "payload": text,
        "payload_encoding": _STRING if kind == TEXT else kind,
    }


def _properties(message: Message) -> dict[str, Any]:
    headers, fields = amqp.read_fields(as_amqp(message.template))
    properties = {name: plain(value) for name, value in fields.items()}
    if message.template.persistent:
        properties["delivery_mode"] = 2
    if headers:
        properties["headers"] = plain(headers)
    return properties
