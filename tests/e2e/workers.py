"""The processes of a broker with several workers, as the system shows them."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

from pika.adapters.blocking_connection import BlockingChannel

from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.raw_mqtt import RawMqtt

TRIES_MAX = 200  # the kernel spreads connections over those who listen, as it likes


def pids(broker: BrokerProcess) -> list[int]:
    """The processes of the workers, by number, as the ready file has them."""
    return list(json.loads(broker.ready_file.read_text("utf-8"))["workers"])


def is_there(pid: int) -> bool:
    """Whether a process runs (one that ended and was not waited for does not, once its threads are gone)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def server_of(client: socket.socket) -> int:
    """The process at the other end of a connection over IPv4 loopback; 0 while nobody has accepted it."""
    here, there = client.getsockname()[1], client.getpeername()[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote = (int(fields[index].rpartition(":")[2], 16) for index in (1, 2))
        if (local, remote) == (there, here):
            return _holder(f"socket:[{fields[9]}]")
    return 0


def _holder(name: str) -> int:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if any(os.readlink(each.path) == name for each in os.scandir(f"{entry.path}/fd")):
                    return int(entry.name)
            except OSError:  # it ended, or closed that
                continue
    return 0


def client_at(pid: int, connect: Callable[[], RawMqtt]) -> RawMqtt:
    """A client that the worker with this process serves."""
    for _ in range(TRIES_MAX):
        client = connect()  # and it was answered, so it was accepted
        if server_of(client.socket) == pid:
            return client
        client.drop()
    raise AssertionError(f"no connection came to {pid}")


def channel_at(broker: BrokerProcess, worker: int) -> BlockingChannel:
    """A channel, which confirms, of a connection to that worker."""
    for _ in range(TRIES_MAX):
        connection = amqp.connect(broker.amqp_port)
        if connection._impl.server_properties["worker"] == worker:
            channel = connection.channel()
            channel.confirm_delivery()
            return channel
        connection.close()
    raise AssertionError(f"no connection came to worker {worker}")
