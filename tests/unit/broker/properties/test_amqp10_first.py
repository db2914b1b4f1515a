"""broker.properties.templates.first_amqp10: the quick way gives what the usual one does."""

from __future__ import annotations

from typing import Any

import pytest

from broker.properties.amqp10_sections import PublishReader
from broker.properties.templates import as_amqp10, first_amqp10
from protocols.amqp10 import types as t
from storage.envelope import EnvelopeTemplate
from tests.e2e.raw_amqp10 import message, section

MESSAGES: dict[str, bytes] = {
    "nothing": message(b"x", durable=False),
    "durable": message(b"x"),
    "properties": message(b"x", message_id="m", subject="s"),
    "long body": message(b"x" * 300, message_id="m"),
    "empty body": message(b"", message_id="m"),
    "application properties": message(b"x", message_id=t.ULong(1), application={"a": 1}),
    **{f"an ID of {size}": message(b"x", message_id="m" * size) for size in (*range(240, 256), 300, 600)},
    "long, and a footer": message(b"x", message_id="m" * 300) + section(0x78, {t.Symbol("x-a"): 1}),
    "annotations": message(b"x", message_id="m", annotations={"x-a": 1}),
    "header": section(0x70, [True, t.UByte(5)]) + message(b"x", durable=False, message_id="m"),
    "value": message(value=["x"], message_id="m"),
    "several data": message(b"x", message_id="m") + section(0x75, b"y"),
    "footer": message(b"x", message_id="m") + section(0x78, {t.Symbol("x-a"): 1}),
    "wide data": message(b"x", message_id="m")[:-4] + b"\x75\xb0\x00\x00\x00\x01x",
}


@pytest.mark.parametrize("case", MESSAGES)
@pytest.mark.parametrize("exchange", ["", "orders"])
def test_both_ways_give_the_same(case: str, exchange: str) -> None:
    published = PublishReader().read(MESSAGES[case])
    options: dict[str, Any] = {"persistent": published.persistent, "exchange": exchange}
    template = EnvelopeTemplate("key", published.properties_kind, published.block, **options)
    usual = as_amqp10(template, published.body)
    content = usual.framed(published.body) if usual.is_framed else published.body
    whole = usual.before(len(published.body)) + content + usual.after
    assert first_amqp10(template, published.body) == whole
