"""The limit of open files: clients beyond it are refused, and those that are in are served as before."""

import contextlib
import re
import resource
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.e2e import amqp
from tests.e2e.broker_process import BrokerFailed, BrokerProcess
from tests.waiting import until

pytestmark = pytest.mark.extension

ROOM_SAID = re.compile(r"(\d+) open files leave room for (\d+) connections")


def allow_open_files(hard: int) -> Callable[[], None]:
    """Sets the limit of open files of a process, the soft one far below `hard`."""
    return partial(resource.setrlimit, resource.RLIMIT_NOFILE, (32, hard))


@contextlib.contextmanager
def idle_clients(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Sockets that connected and say nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 500)), hard))
    clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


def still_connected(clients: list[socket.socket]) -> list[socket.socket]:
    """Those the broker has not closed so far."""
    connected = []
    for client in clients:
        client.settimeout(0)
        try:
            client.recv(1)
        except BlockingIOError:
            connected.append(client)
        except ConnectionError:
            pass
    return connected


@pytest.mark.parametrize(("open_files_max", "client_count"), [(64, 100), (1_024, 1_100)])
def test_clients_beyond_the_limit_are_refused_and_confirms_go_on(
    own_broker, amqp_connect, open_files_max, client_count
):
    process = own_broker(before_exec=allow_open_files(open_files_max))
    limit, room = map(int, ROOM_SAID.search(process.log).groups())
    assert limit == open_files_max
    channel = amqp_connect(process).channel()
    channel.confirm_delivery()
    channel.queue_declare("work", durable=True)
    with idle_clients(process.mqtt_port, client_count) as clients:
        until(lambda: len(still_connected(clients)) < room)  # who is not let in is closed
        assert len(still_connected(clients)) == room - 1
        began = time.monotonic()
        for number in range(50):
            amqp.publish(channel, "work", str(number))
        assert time.monotonic() - began < 10
        assert 1 <= process.log.count("connection.refused") <= 10
        assert "storage." not in process.log
        with pytest.raises(amqp.AMQPError):
            amqp.connect(process.amqp_port)

    def let_in() -> amqp.BlockingChannel | None:
        try:
            return amqp_connect(process).channel()
        except amqp.AMQPError:
            return None

    late = until(let_in)
    assert late.basic_get("work", auto_ack=True)[2] == b"0"
    assert process.alive


def test_soft_limit_is_raised_to_the_hard_one(own_broker):
    process = own_broker(before_exec=allow_open_files(400))
    with idle_clients(process.mqtt_port, 200) as clients:
        assert len(still_connected(clients)) == 200, process.log


def test_limit_too_low_to_serve_is_said_at_the_start(tmp_path):
    process = BrokerProcess(tmp_path, before_exec=allow_open_files(40))
    with pytest.raises(BrokerFailed, match=r"limit of open files \(ulimit -n\) is 40, 48 are needed"):
        process.start()
    assert "Traceback" not in process.log
