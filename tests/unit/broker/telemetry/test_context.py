"""What a message says of the trace it belongs to."""

import pytest

from broker.properties import amqp, mqtt
from broker.properties.neutral_model import MessageProperties
from broker.telemetry.trace_context import Sampling, TraceContext, parse
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_MQTT, EnvelopeTemplate

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def template(kind: int, traceparent: object) -> EnvelopeTemplate:
    properties = MessageProperties()
    properties.headers = [("traceparent", traceparent), ("tracestate", "a=1")]  # type: ignore[list-item]
    block = (amqp if kind == PROPERTIES_AMQP else mqtt).write(properties)
    return EnvelopeTemplate("t", kind, block)


def test_traceparent_is_read_with_its_state() -> None:
    assert parse(PARENT, "a=1") == TraceContext(int(TRACE, 16), int(SPAN, 16), 1, "a=1")
    assert parse(PARENT.encode()) == TraceContext(int(TRACE, 16), int(SPAN, 16), 1, "")
    later = parse(f"01-{TRACE}-{SPAN}-01-more")  # of a later version what is known counts
    assert later is not None


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "00",
        PARENT.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"{PARENT}-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-1",
    ],
)
def test_what_is_no_traceparent_is_passed_over(text: object) -> None:
    assert parse(text) is None


@pytest.mark.parametrize("kind", [PROPERTIES_AMQP, PROPERTIES_MQTT])
def test_only_what_its_publisher_sampled_is_traced(kind: int) -> None:
    everything = Sampling(1.0)
    found = everything.context_of(template(kind, PARENT))
    assert found is not None
    assert (found.trace_id, found.state) == (int(TRACE, 16), "a=1")
    assert everything.context_of(template(kind, PARENT[:-1] + "0")) is None
    assert everything.context_of(EnvelopeTemplate("t", kind, b"")) is None
    assert Sampling(0).context_of(template(kind, PARENT)) is None


def test_share_decides_about_whole_traces() -> None:
    half = Sampling(0.5)
    low, high = (f"00-{'1' * 16}{digit * 16}-{SPAN}-01" for digit in ("1", "f"))
    assert half.context_of(template(PROPERTIES_AMQP, low)) is not None
    assert half.context_of(template(PROPERTIES_AMQP, high)) is None
