"""Staged epochs over pika: publish as an attempt, call a control address and wait for its answer."""

import json
import time
import uuid
from typing import Any

import pika

from tests.e2e.amqp import BlockingChannel


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
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        method, properties, answer = channel.basic_get(reply_to, auto_ack=True)
        if method is not None:
            assert properties.correlation_id == mark
            assert properties.content_type == "application/json"
            return json.loads(answer)  # type: ignore[no-any-return]
        time.sleep(0.01)
    raise AssertionError(f"no answer to {verb} within {timeout_s} s")


def commit(
    channel: BlockingChannel, queue: str, *parts: tuple[int, str, int], **options: Any
) -> dict[str, Any]:
    """Commit an epoch made up of these (part, attempt, rows)."""
    body = json.dumps({"parts": [list(part) for part in parts]}).encode()
    return call(channel, queue, "$stage-commit", body=body, **options)
