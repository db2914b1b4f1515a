"""systemd is told that the broker serves, lives and stops."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.process.service_manager import ServiceManager


@pytest.fixture
def manager_socket(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(5)
        yield listening


def told(listening: socket.socket) -> list[str]:
    return listening.recv(4096).decode().splitlines()


def test_each_state_is_told_to_the_socket(manager_socket):
    manager = ServiceManager({"NOTIFY_SOCKET": manager_socket.getsockname()})
    manager.ready("mqtt on port 1883")
    assert told(manager_socket) == ["READY=1", "STATUS=mqtt on port 1883", f"MAINPID={os.getpid()}"]
    manager.alive()
    assert told(manager_socket) == ["WATCHDOG=1"]
    manager.stopping("finishing")
    assert told(manager_socket) == ["STOPPING=1", "STATUS=finishing"]


def test_abstract_socket_is_reached():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        name = f"sluicemq-test-{os.getpid()}"
        listening.bind(f"\0{name}")
        listening.settimeout(5)
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).alive()
        assert told(listening) == ["WATCHDOG=1"]


def test_without_a_manager_nothing_happens():
    manager = ServiceManager({})
    manager.ready("")
    assert manager.alive_interval_s == 0


def test_socket_that_is_gone_is_no_error(tmp_path):
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).alive()


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({"WATCHDOG_USEC": "60000000"}, 30),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 30),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
    ],
)
def test_watchdog_of_this_process_is_fed_twice_in_its_time(environment, interval_s):
    assert ServiceManager(environment).alive_interval_s == interval_s


def test_children_do_not_inherit_the_socket():
    environment = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "1", "HOME": "/root"}
    ServiceManager(environment)
    assert environment == {"HOME": "/root"}
