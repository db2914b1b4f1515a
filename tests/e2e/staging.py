"""Staged epochs over pika: publish as an attempt, call a control address and wait for its answer."""

import json
import uuid
from typing import Any

import pika

from tests.e2e import amqp
from tests.e2e.amqp import BlockingChannel
from tests.waiting import until


def stage(
    channel: BlockingChannel,
    queue: str,
    *payloads: bytes | str,
    producer: str = "job",
    epoch: int = 0,
    part: int = 0,
    attempt: str = "a",
    routing_key: str = "",
    **properties: Any,
) -> None:
    """Stage rows; with confirms on, returns when they are durable."""
    headers = {
        "x-stage-producer": producer,
        "x-stage-epoch": epoch,
        "x-stage-part": part,
        "x-stage-attempt": attempt,
        **properties.pop("headers", {}),
    }
    for payload in payloads:
        channel.basic_publish(
            "", routing_key or queue, payload, pika.BasicProperties(headers=headers, **properties)
        )


def call(
    channel: BlockingChannel,
    queue: str,
    verb: str,
    *,
    producer: str = "job",
    epoch: int = 0,
    body: bytes = b"",
    timeout_s: float = 5,
    **headers: Any,
) -> dict[str, Any]:
    """Publish to `$queue/<queue>/<verb>` and give the answer."""
    reply_to = channel.queue_declare("", exclusive=True).method.queue
    mark = uuid.uuid4().hex
    channel.basic_publish(
        "",
        f"$queue/{queue}/{verb}",
        body,
        pika.BasicProperties(
            headers={"x-stage-producer": producer, "x-stage-epoch": epoch, **headers},
            reply_to=reply_to,
            correlation_id=mark,
        ),
    )
    got = until(lambda: amqp.get(channel, reply_to), timeout_s, told=lambda: f"no answer to {verb}")
    assert got.properties.correlation_id == mark
    assert got.properties.content_type == "application/json"
    return json.loads(got.body)  # type: ignore[no-any-return]


def commit(
    channel: BlockingChannel, queue: str, *parts: tuple[int, str, int], **options: Any
) -> dict[str, Any]:
    """Commit an epoch made up of these (part, attempt, rows)."""
    body = json.dumps({"parts": [list(part) for part in parts]}).encode()
    return call(channel, queue, "$stage-commit", body=body, **options)
