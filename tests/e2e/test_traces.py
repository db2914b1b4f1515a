"""Traces that follow a message from one protocol to the other, as a collector gets them."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pika
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient, user_property

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"

Connect = Callable[..., pika.BlockingConnection]
Mqtt = Callable[..., MqttClient]

pytestmark = pytest.mark.timeout(60)


class Collector:
    """Takes traces over HTTP, and keeps the spans."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces":
                    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                        collector.spans += [span for scope in resource.scope_spans for span in scope.spans]
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def test_trace_context_passes_between_the_protocols_unchanged_and_spans_reach_the_collector(
    own_broker: Callable[..., BrokerProcess], amqp_connect: Connect, mqtt: Mqtt, collector: Collector
) -> None:
    broker = own_broker({"telemetry": {"otlp": collector.url}})
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    channel.queue_declare("to-amqp", durable=True)
    channel.queue_declare("to-mqtt", durable=True)
    traced = [("traceparent", PARENT), ("tracestate", STATE)]
    device = mqtt(broker, version=5)
    assert device.publish("$queue/to-amqp", "x", user=traced) == 0
    method, properties, _ = channel.basic_get("to-amqp")
    assert {name: properties.headers[name] for name, _ in traced} == dict(traced)
    channel.basic_ack(method.delivery_tag)
    headers = {**dict(traced), "other": 1}
    channel.basic_publish("", "to-mqtt", b"y", pika.BasicProperties(delivery_mode=2, headers=headers))
    device.subscribe("$queue/to-mqtt", 1)
    message = device.take_one()
    assert [user_property(message, name) for name, _ in traced] == [PARENT, STATE]
    channel.basic_publish(
        "", "to-mqtt", b"z", pika.BasicProperties(headers={"traceparent": PARENT[:-1] + "0"})
    )
    device.take_one()
    assert broker.stop() == 0
    names = sorted(span.name for span in collector.spans)
    assert names == sorted(
        f"{what} {queue}" for queue in ("to-amqp", "to-mqtt") for what in ("publish", "deliver", "ack")
    )
    for span in collector.spans:
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == tuple(PARENT.split("-")[1:3])
        assert span.trace_state == STATE
        attributes = {each.key: each.value.string_value for each in span.attributes}
        queue = span.name.partition(" ")[2]
        assert attributes["messaging.message.id"] == f"{queue}:0"
        if span.name.startswith("publish"):
            assert span.end_time_unix_nano > span.start_time_unix_nano  # until it was durable


def test_collector_that_is_away_holds_up_nobody(own_broker: Callable[..., BrokerProcess], mqtt: Mqtt) -> None:
    broker = own_broker({"telemetry": {"otlp": "http://127.0.0.1:9"}})
    device = mqtt(broker, version=5)
    for _ in range(3):
        assert device.publish("$queue/work", "x", user=[("traceparent", PARENT)]) == 0
    assert broker.stop(timeout_s=30) == 0
    assert "telemetry.not_exported" in broker.log
