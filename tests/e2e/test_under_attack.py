"""Brute force, slow handshakes, too many connections: the broker goes on serving, and says so once."""

import contextlib
import socket
import time

import pika
import pytest

from broker.access.passwords import hashed
from broker.network.tls.making import make_server, own_hosts
from config import limits
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.raw_mqtt import RawMqtt, connect, string
from tests.waiting import until

PASSWORD = "a-Secret-of-this-test"
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
GUESSES = 8


def make(directory, *, timed=False, **access):
    kept = hashed(PASSWORD.encode())
    users = [
        UserSettings(name=name, password=kept, permissions=(PermissionSettings(**EVERYTHING),))
        for name in ("alice", "bob")
    ]
    save_users(directory / "users.yaml", UsersSettings(users=tuple(users)))
    access = {"users_file": str(directory / "users.yaml"), "anonymous": "never", **access}
    make_server(directory, own_hosts())
    pem = {"cert": str(directory / "server.crt"), "key": str(directory / "server.key")}
    with_tls = {name: {"port": 0, "tls": pem} for name in ("amqps", "https")}
    config = {"access": access, "listeners": with_tls}
    return BrokerProcess(directory, config, arguments=["--mqcore", "0"], timed=timed).start()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    process = make(tmp_path_factory.mktemp("attacked"))
    yield process
    process.kill9()
    assert PASSWORD not in process.log


def guess(process, user):
    """How long a wrong password took to be refused."""
    started = time.monotonic()
    client = RawMqtt(process.mqtt_port, version=None)
    client.send_bytes(connect(5, "guessing", flags=0xC2, after=string(user) + string("guess")))
    assert client.farewell(20) == 0x86
    client.drop()
    return time.monotonic() - started


@pytest.mark.timeout(120)
def test_guessing_passwords_becomes_slow_and_others_are_served(guarded):
    """The first guesses take a hash each; later ones wait ever longer, while bob, who was in, does not."""
    amqp.connect(guarded.amqp_port, user="bob", password=PASSWORD).close()
    times = [guess(guarded, "alice") for _ in range(GUESSES)]
    assert sum(times[-3:]) > 5 * limits.LOGIN_DELAY_S_MIN > sum(times[:2]) / 10
    started = time.monotonic()
    connection = amqp.connect(guarded.amqp_port, user="bob", password=PASSWORD)
    connection.close()
    assert time.monotonic() - started < min(limits.LOGIN_DELAY_S_MAX, sum(times[-3:]) + 2)


@pytest.mark.parametrize("timed", [True, pytest.param(False, marks=pytest.mark.long)])
def test_slow_handshakes_end_and_hold_nobody_up(tmp_path, timed):
    """One byte, or a part of a header, and then nothing, on every listener. uvloop knows real clocks only."""
    guarded = make(tmp_path, timed=timed)
    begun = [socket.create_connection(("127.0.0.1", guarded.amqp_port), timeout=30) for _ in range(5)]
    begun += [socket.create_connection(("127.0.0.1", guarded.mqtt_port), timeout=30) for _ in range(5)]
    for name in ("amqps", "https", "http", "mqcore"):
        begun += [socket.create_connection(("127.0.0.1", guarded.ports[name]), timeout=30) for _ in range(5)]
    first_bytes = {
        guarded.amqp_port: b"A",
        guarded.mqtt_port: b"\x10",
        guarded.ports["amqps"]: b"\x16\x03",
        guarded.ports["https"]: b"\x16\x03",
        guarded.ports["http"]: b"GET / HTTP/1.1\r\nhost: localhost\r\nx",
        guarded.ports["mqcore"]: b"GE",
    }
    for client in begun:
        client.sendall(first_bytes[client.getpeername()[1]])
    connection = amqp.connect(guarded.amqp_port, user="bob", password=PASSWORD)
    for _ in range(4 if timed else 0):
        guarded.pass_time(5.1)
        assert amqp.connect(guarded.amqp_port, user="bob", password=PASSWORD).is_open
    for client in begun:
        client.settimeout(25)
        try:
            while client.recv(1000):
                pass
        except ConnectionError:
            pass
        client.close()
    assert connection.is_open
    connection.close()
    assert guarded.stop() == 0


def test_who_is_not_in_may_send_little(guarded):
    with socket.create_connection(("127.0.0.1", guarded.amqp_port), timeout=10) as client:
        client.sendall(b"AMQP\x00\x00\x09\x01")
        client.recv(10_000)
        size = limits.AMQP_HANDSHAKE_FRAME_BYTES_MAX + 1
        client.sendall(b"\x01\x00\x00" + size.to_bytes(4, "big"))
        assert b"FRAME_ERROR" in client.recv(10_000)
    for name in ("http", "mqcore"):
        with socket.create_connection(("127.0.0.1", guarded.ports[name]), timeout=10) as client:
            head = b"GET / HTTP/1.1\r\nx: " + b"x" * (limits.HTTP_HEAD_BYTES_MAX + 300_000)
            with contextlib.suppress(ConnectionError):
                client.sendall(head)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while part := client.recv(10_000):
                    answer += part
            assert answer.startswith(b"HTTP/1.1 400") or not answer
    raw = RawMqtt(guarded.mqtt_port, version=None)
    raw.send_quietly(b"\x10" + b"\xff\xff\xff\x7f" + b"x" * 100)
    assert raw.farewell() in (None, 0x95)
    raw.drop()


def test_an_address_has_as_many_connections_as_it_may(tmp_path):
    process = make(tmp_path, connections_per_address=3)
    try:
        held = [RawMqtt(process.mqtt_port, version=None) for _ in range(3)]
        with pytest.raises((pika.exceptions.AMQPError, OSError)):
            amqp.connect(process.amqp_port, user="bob", password=PASSWORD)
        for client in held:
            client.drop()

        def is_let_in() -> bool:
            try:
                amqp.connect(process.amqp_port, user="bob", password=PASSWORD).close()
            except (amqp.AMQPError, OSError):
                return False
            return True

        until(is_let_in)
        lines = [line for line in process.log.splitlines() if "connection.refused" in line]
        assert lines
        assert "from one address" in lines[0]
    finally:
        process.kill9()


def test_unknown_and_known_users_take_as_long(guarded):
    """Each of them one hash, from addresses that have not failed (a login that waits says nothing)."""
    raw = [guess(guarded, user) for user in ("nobody-1", "bob")]
    hash_s = 0.01  # the least that a hash takes; an answer without one takes a millisecond
    assert min(raw) > hash_s
