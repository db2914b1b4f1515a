"""Deliveries with several numbers of their own in the headers."""

import pytest

from protocols.amqp091.content import append_headers
from protocols.amqp091.hot import DeliverTemplate
from protocols.amqp091.hot_stamped import StampedTemplate, encode_deliver_stamped
from tests.unit.protocols.amqp091.test_hot import template, unmarshal_all

NAMES = ("x-offset", "x-stream-timestamp", "x-stream-offset")


def made(size: int) -> DeliverTemplate:
    headers = [("x-group-id", "g"), *((name, 0) for name in NAMES)]
    return template(size, properties=append_headers(b"\x10\x00\x02", headers))


@pytest.mark.parametrize("size", [0, 5])
@pytest.mark.parametrize("count", [1, 3])
def test_each_stamped_delivery_has_its_numbers(size, count):
    bodies = [bytes([at]) * size for at in range(count)]
    columns = [[at * 1_000 + number for at in range(count)] for number in (1, 2**41, 3)]
    output: list[bytes] = []
    encode_deliver_stamped(output, StampedTemplate(made(size), NAMES), 5, columns, bodies)
    encode_deliver_stamped(output, StampedTemplate(made(size), NAMES), 9, [[], [], []], [])
    frames = [frame for _, frame in unmarshal_all(b"".join(output))]
    headers = [frame.properties.headers for frame in frames if frame.name == "ContentHeader"]
    numbers = [dict(zip(NAMES, row, strict=True)) for row in zip(*columns, strict=True)]
    assert headers == [{"x-group-id": "g"} | row for row in numbers]
    tags = [frame.delivery_tag for frame in frames if frame.name == "Basic.Deliver"]
    assert tags == list(range(5, 5 + count))
    if size:
        assert [frame.value for frame in frames if frame.name == "ContentBody"] == bodies


def test_stamping_a_header_that_is_absent_raises():
    with pytest.raises(ValueError):
        StampedTemplate(template(5), NAMES)
