"""Connections between nodes: who may open one, and what becomes of others."""

import asyncio
import math
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from broker.network.tls.making import Authority, write_pair
from broker.nodes.node_files import node_side
from broker.workers import node_links
from broker.workers import node_side as node_side_module
from broker.workers.node_side import Epoch, NodeDeadline, NodeSide, Peers
from broker.workers.socket_passing import Told
from config import limits
from config.cluster_settings import ClusterSettings
from config.settings_loader import ConfigError
from storage.lease_clock import lease_clock_s
from tests.waiting import until_so
from tests.worker_group import free_port

SHARD = 3


class Ends(asyncio.Protocol):
    """One end of a link."""

    def __init__(self) -> None:
        self.received = b""
        self.come = asyncio.Event()
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.come.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


def side_of(secret: bytes) -> NodeSide:
    deadline = NodeDeadline()
    deadline.set(math.inf)
    return NodeSide("n", "127.0.0.1", free_port() - SHARD, Epoch(1), secret, deadline, Peers())


@asynccontextmanager
async def listening(side: NodeSide) -> AsyncIterator[list[Ends]]:
    made: list[Ends] = []

    def make() -> Ends:
        made.append(Ends())
        return made[-1]

    listener = node_links.NodeListener(side, SHARD, make)
    await listener.begin()
    try:
        yield made
    finally:
        listener.stop()


def place_of(side: NodeSide) -> tuple[str, int]:
    return side.host, side.first_port + SHARD


async def test_what_is_said_at_once_behind_the_greeting_comes_to_the_link() -> None:
    side = side_of(b"secret")
    async with listening(side) as made:
        asking = Ends()
        await node_links.connect_link(side, place_of(side), 1, SHARD, asking)
        asking.transport.write(b"frames")
        await until_so(lambda: bool(made))
        await asyncio.wait_for(made[0].come.wait(), 5)
        assert made[0].received == b"frames"
        made[0].transport.write(b"answers")
        await asyncio.wait_for(asking.come.wait(), 5)
        assert asking.received == b"answers"


async def test_a_node_with_another_secret_is_refused_by_who_asks() -> None:
    side = side_of(b"secret")
    async with listening(side) as made:
        other = replace(side, secret=b"other")
        with pytest.raises(ConnectionRefusedError, match="does not know the secret"):
            await node_links.connect_link(other, place_of(side), 1, SHARD, Ends())
        await asyncio.sleep(0.05)
        assert made == []


async def test_who_shows_no_proof_is_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    side = side_of(b"secret")
    async with listening(side) as made:
        reader, writer = await asyncio.open_connection(*place_of(side))
        wanted = node_links._WANTED.pack(b"SLQ1", node_links.LINK, 1, SHARD, bytes(16))
        writer.write(wanted)
        await reader.readexactly(48)
        writer.write(bytes(32))
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        assert made == []


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n" + bytes(30), b"SLQ1" + bytes(40)])
async def test_what_is_not_said_by_nodes_ends_the_connection(said: bytes) -> None:
    side = side_of(b"secret")
    async with listening(side) as made:
        reader, writer = await asyncio.open_connection(*place_of(side))
        writer.write(said)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        assert made == []


async def test_who_says_nothing_is_sent_away_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LINK_GREETING_TIMEOUT_S", 0.05)
    side = side_of(b"secret")
    async with listening(side):
        reader, writer = await asyncio.open_connection(*place_of(side))
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


async def test_no_more_connections_than_the_limit_wait_to_be_greeted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LINK_GREETINGS_MAX", 1)
    side = side_of(b"secret")
    async with listening(side):
        first, first_writer = await asyncio.open_connection(*place_of(side))
        await asyncio.sleep(0.05)
        second, second_writer = await asyncio.open_connection(*place_of(side))
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(second.read(), 5) == b""
        first_writer.close()
        second_writer.close()


async def test_a_shard_that_is_not_there_is_not_linked() -> None:
    side = side_of(b"secret")
    async with listening(side):
        with pytest.raises(ConnectionError):
            await node_links.connect_link(side, place_of(side), 1, SHARD + 1, Ends())


async def test_a_client_is_refused_while_none_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_PASSING_TIMEOUT_S", 0.2)
    side = side_of(b"secret")
    async with listening(side):
        side.peers.take({SHARD: place_of(side)})
        with pytest.raises(TimeoutError):
            await node_links.connect_client(side, 1, SHARD, Told("mqtt", "1.2.3.4:5"), b"CONNECT")


@pytest.fixture
def pems(tmp_path: Path) -> Path:
    authority = Authority.made()
    write_pair(tmp_path, "ca", authority.key, authority.certificate)
    for name, issuer in (("node", authority), ("stranger", Authority.made())):
        pair = issuer.issue("127.0.0.1", ["127.0.0.1"], is_server=True, is_client=True)
        write_pair(tmp_path, name, *pair)
    return tmp_path


def secured(pems: Path, name: str) -> ClusterSettings:
    files = {"cert_file": f"{name}.crt", "key_file": f"{name}.key", "ca_file": "ca.crt"}
    return ClusterSettings.model_validate(
        {
            "listen": f"127.0.0.1:{free_port() - SHARD}",
            "tls": {key: str(pems / value) for key, value in files.items()},
        }
    )


async def test_nodes_with_certificates_are_linked_over_tls_and_others_are_not(pems: Path) -> None:
    side = node_side(secured(pems, "node"))
    async with listening(side) as made:
        asking = Ends()
        await node_links.connect_link(side, place_of(side), 1, SHARD, asking)
        assert isinstance(asking.transport.get_extra_info("ssl_object"), ssl.SSLObject | ssl.SSLSocket)
        await until_so(lambda: bool(made))
        for stranger in (node_side(secured(pems, "stranger")), replace(side, asking=None)):
            with pytest.raises((OSError, TimeoutError)):
                await node_links.connect_link(stranger, place_of(side), 1, SHARD, Ends())
        assert len(made) == 1


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), (b"short", "less than 16 bytes")])
def test_a_secret_that_is_none_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        node_side(ClusterSettings(listen="127.0.0.1:7000", secret_file=str(path)))


class Passed:
    """A client that was passed on to the worker of a shard at another node: both its ends."""

    def __init__(self, side: NodeSide) -> None:
        self.side = side
        self.client = Ends()
        self.served: socket.socket

    async def begin(self) -> None:
        taken: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        listener = node_links.NodeListener(self.side, SHARD, Ends)
        listener.on_client = lambda connection, told, said: taken.set_result(connection)
        await listener.begin()
        self.side.peers.take({SHARD: place_of(self.side)})
        told = Told("mqtt", "1.2.3.4:5")
        (await node_links.connect_client(self.side, 1, SHARD, told, b"CONNECT"))(self.client)
        self.served = await taken
        listener.stop()

    async def quiet(self) -> bytes:
        """What has come once everything that can come has."""
        await asyncio.sleep(3 * limits.LINK_LEASE_LOOK_MS / 1000)
        return self.client.received


async def test_what_a_client_that_was_passed_on_is_sent_waits_while_the_lease_is_over() -> None:
    passed = Passed(side_of(b"secret"))
    await passed.begin()
    passed.served.send(b"first")
    await until_so(lambda: passed.client.received == b"first")
    passed.side.deadline.set(0)
    passed.served.send(b", second")
    passed.client.transport.write(b"heard")
    assert await passed.quiet() == b"first"
    assert await asyncio.get_running_loop().sock_recv(passed.served, 100) == b"heard"
    passed.side.deadline.set(math.inf)
    passed.served.send(b", third")
    await until_so(lambda: passed.client.received == b"first, second, third")
    passed.served.close()
    await asyncio.wait_for(passed.client.lost.wait(), 5)


async def test_what_waits_for_the_lease_goes_with_who_served_the_client() -> None:
    passed = Passed(side_of(b"secret"))
    await passed.begin()
    passed.side.deadline.set(0)
    passed.served.send(b"too old")
    assert await passed.quiet() == b""
    passed.client.transport.write(b"unread")
    passed.served.close()
    await passed.quiet()
    passed.client.transport.write(b"so that the end is seen")
    await asyncio.wait_for(passed.client.lost.wait(), 5)
    assert passed.client.received == b""


async def test_client_that_takes_nothing_is_sent_nothing_more_when_the_lease_is_renewed() -> None:
    passed = Passed(side_of(b"secret"))
    await passed.begin()
    passed.client.transport.pause_reading()
    sent_bytes = 0
    loop = asyncio.get_running_loop()
    chunk = bytes(1 << 20)

    async def send() -> None:
        nonlocal sent_bytes
        while True:
            await loop.sock_sendall(passed.served, chunk)
            sent_bytes += len(chunk)

    sending = loop.create_task(send())
    await passed.quiet()
    before_bytes = sent_bytes
    for ends in (0, math.inf):
        passed.side.deadline.set(ends)
        await passed.quiet()
    assert sent_bytes <= before_bytes + len(chunk)
    sending.cancel()
    passed.client.transport.abort()


def test_lease_is_over_by_the_clock_that_goes_on_while_the_machine_is_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side = side_of(b"secret")
    side.deadline.set(lease_clock_s() + 10)
    assert side.has_lease()
    monkeypatch.setattr(node_side_module, "lease_clock_s", lambda: lease_clock_s() + 60)
    assert not side.has_lease()
