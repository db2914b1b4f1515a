"""The bridge's publisher continues where it stopped after the network failed, without loss or duplicates."""

import socket
import threading
import time
from dataclasses import replace

import pytest

from spark_bridge import epochs, wire
from spark_bridge.epochs import Epoch, StagedPart
from spark_bridge.errors import BrokerUnreachable, Refused
from spark_bridge.offsets import OffsetReader
from spark_bridge.options import write_settings
from spark_bridge.publisher import Publisher
from tests.e2e import amqp

pytestmark = pytest.mark.extension

ROWS = 20_000


class Relay:
    """A port that stays while the broker behind it changes; `cut` ends what goes through it."""

    def __init__(self, port):
        self.target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                if self._listener.fileno() < 0:
                    return
                near.close()
                continue
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        try:
            while data := source.recv(65_536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        for end in self._open:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._open.clear()

    def close(self):
        self._listener.close()
        self.cut()


@pytest.fixture
def relay():
    made = []

    def make(port):
        made.append(Relay(port))
        return made[-1]

    yield make
    for each in made:
        each.close()


def rows_of(part, count):
    properties = wire.encode_properties({"headers": epochs.stage_headers(part)})
    head = wire.method(1, 60, 40, b"\0\0" + wire.short("") + wire.short("q") + b"\1")
    for number in range(count):
        body = b"%d" % number
        yield head + wire.content_header(1, len(body), properties) + wire.frame(wire.BODY, 1, body)


def test_publisher_continues_after_the_broker_was_killed(own_broker, relay, amqp_connect):
    broker = own_broker({"queues": [{"name": "q"}]})
    between = relay(broker.amqp_port)
    settings = write_settings({"queue": "q", "port": str(between.port), "confirmTimeout": "10s"})
    part = StagedPart(Epoch("job/q", 0), 0, "a", ROWS, 0)
    publisher = Publisher(
        settings.connection, 2_000, lambda connection: epochs.staged_count(connection, settings, part)
    )
    rows = list(rows_of(part, ROWS))
    publisher.send(rows[:7_000])
    between.cut()
    publisher.send(rows[7_000:12_000])
    broker.restart(kill=True)
    between.target = broker.amqp_port
    publisher.send(rows[12_000:])
    publisher.finish()
    epochs.commit(settings, [part])
    reader = amqp.Collector(amqp_connect(broker).channel(), "q", auto_ack=True)
    reader.wait(ROWS, timeout_s=20)
    assert [int(body) for body in amqp.bodies(reader.wait_quiet())] == list(range(ROWS))


def test_publisher_continues_at_the_address_where_the_broker_is_now(own_broker, relay, amqp_connect):
    broker = own_broker({"queues": [{"name": "q"}]})
    first, second = relay(broker.amqp_port), relay(1)
    hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
    settings = write_settings({"queue": "q", "host": hosts, "confirmTimeout": "10s"})
    part = StagedPart(Epoch("job/q", 0), 0, "a", ROWS, 0)
    publisher = Publisher(
        settings.connection, 2_000, lambda connection: epochs.staged_count(connection, settings, part)
    )
    rows = list(rows_of(part, ROWS))
    publisher.send(rows[:9_000])
    assert publisher.connection.at == f"127.0.0.1:{first.port}"
    first.close()
    broker.restart(kill=True)
    second.target = broker.amqp_port
    publisher.send(rows[9_000:])
    publisher.finish()
    assert publisher.connection.at == f"127.0.0.1:{second.port}"
    epochs.commit(settings, [part])
    reader = amqp.Collector(amqp_connect(broker).channel(), "q", auto_ack=True)
    reader.wait(ROWS, timeout_s=20)
    assert [int(body) for body in amqp.bodies(reader.wait_quiet())] == list(range(ROWS))


def test_publisher_raises_when_the_broker_stays_away(own_broker, relay):
    broker = own_broker({"queues": [{"name": "q"}]})
    between = relay(broker.amqp_port)
    settings = write_settings({"queue": "q", "port": str(between.port), "connectTimeout": "1s"})
    part = StagedPart(Epoch("job/q", 0), 0, "a", 10, 0)
    publisher = Publisher(settings.connection, 2_000)
    broker.kill9()
    between.close()
    publisher.send(list(rows_of(part, 10)))
    with pytest.raises(BrokerUnreachable, match="options host, port, connectTimeout"):
        publisher.finish()


def test_refusal_is_raised_with_its_reason(own_broker):
    broker = own_broker({"queues": [{"name": "q", "limits": {"max_message_size": "1KB"}}]})
    settings = write_settings({"queue": "q", "port": str(broker.amqp_port)})
    publisher = Publisher(settings.connection, 10)
    publisher.connection.publish("", "q", bytes(2_000), wire.encode_properties({}))
    with pytest.raises(Refused, match="larger than the queue's limit of"):
        publisher.connection.wait_confirmed()
    # refused while most of it is still to be sent: the rest of the connection is of no use
    publisher.connection.close()
    publisher = Publisher(settings.connection, 10)
    publisher.connection.publish("", "q", bytes(20_000_000), wire.encode_properties({}))
    with pytest.raises(Refused, match="larger than the queue's limit of"):
        publisher.connection.wait_confirmed()
    before = time.monotonic()
    publisher.close()
    assert time.monotonic() - before < 1
    nowhere = Publisher(settings.connection, 10)
    nowhere.connection.publish("", "nowhere", b"x", wire.encode_properties({}), mandatory=True)
    with pytest.raises(Refused, match="no queue receives messages with routing key 'nowhere'"):
        nowhere.connection.wait_confirmed()
    nowhere.close()


def test_reported_progress_never_moves_back(own_broker):
    broker = own_broker({"queues": [{"name": "s", "type": "stream"}]})
    settings = write_settings({"queue": "s", "port": str(broker.amqp_port), "confirmTimeout": "2s"})
    with Publisher(settings.connection, 10).connection as connection:
        for _ in range(9):
            connection.publish("", "s", b"x", wire.encode_properties({}))
        connection.wait_confirmed()
    reader = OffsetReader(settings.connection)
    assert reader.ends("s") == (0, 9)
    assert reader.anchor("s", "g", "first") == 0
    for reported, committed in ((4, 4), (7, 7), (5, 7)):
        reader.report("g", {"s": reported})
        assert reader.anchor("s", "g", "first") == committed
    broker.kill9()
    with pytest.raises(BrokerUnreachable):
        OffsetReader(replace(settings.connection, connect_timeout_s=0.5)).ends("s")
    reader.close()


def test_a_port_that_takes_connections_and_says_nothing_is_given_up_in_time(own_broker):
    broker = own_broker({"queues": [{"name": "q"}]})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = write_settings({"queue": "q", "host": host, "connectTimeout": "500ms"})
        began = time.monotonic()
        with pytest.raises(BrokerUnreachable, match=r"within 0\.5 s .*does not answer"):
            Publisher(settings.connection, 10)
        assert time.monotonic() - began < 10, "the time for answers counts once there is a connection"
        both = write_settings({"queue": "q", "host": f"{host},127.0.0.1:{broker.amqp_port}"})
        with Publisher(both.connection, 10).connection as connection:
            assert connection.at == f"127.0.0.1:{broker.amqp_port}"
