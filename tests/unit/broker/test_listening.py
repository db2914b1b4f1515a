"""broker.network.listening on real sockets, with protocols that only note what happens to them."""

import asyncio
import errno
import os
import socket

import pytest
from structlog.testing import capture_logs

from broker.clock import Clock
from broker.network.listening import AddressInUse, ListenError, Listeners
from broker.process.descriptors import ConnectionRoom
from config import limits
from config.settings import HttpListenerSettings, ListenerSettings
from tests.waiting import turns, until_so


class Noted(asyncio.Protocol):
    """Lives until its peer goes."""

    def __init__(self, lost) -> None:
        self._lost = lost

    def connection_made(self, transport):
        transport.write(b"in")

    def connection_lost(self, exc):
        self._lost()


@pytest.fixture
async def listeners():
    made = Listeners({"test": ListenerSettings()}, Clock())
    yield made
    made.close()


async def answer(port: int) -> bytes:
    """What a new client hears first; it stays connected."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    _writers.append(writer)
    return await asyncio.wait_for(reader.read(10), 5)


_writers: list[asyncio.StreamWriter] = []


@pytest.fixture(autouse=True)
async def end_clients():
    yield
    for writer in _writers:
        writer.close()
    _writers.clear()


async def test_nobody_is_let_in_before_open(listeners):
    await listeners.bind()
    with pytest.raises(ConnectionRefusedError):
        await answer(listeners.ports["test"])
    listeners.open({"test": Noted}, ConnectionRoom(10, ""))
    assert await answer(listeners.ports["test"]) == b"in"


async def test_client_of_a_listener_without_a_maker_is_let_in_once_there_is_one():
    listeners = Listeners({"test": ListenerSettings(), "other": ListenerSettings()}, Clock())
    await listeners.bind()
    listeners.open({"other": Noted}, ConnectionRoom(10, ""))
    early = asyncio.create_task(answer(listeners.ports["test"]))
    await until_so(lambda: _writers)  # connected
    assert await answer(listeners.ports["other"]) == b"in", "who came later to another listener is in"
    assert not early.done()
    listeners.let_wait_in({"test": Noted})
    assert await early == b"in"
    listeners.close()


async def test_one_beyond_the_room_is_closed_and_told_and_let_in_once_another_goes(listeners):
    await listeners.bind()
    port = listeners.ports["test"]
    listeners.open({"test": Noted}, ConnectionRoom(2, "two fit"))
    with capture_logs() as logged:
        assert [await answer(port) for _ in range(5)] == [b"in", b"in", b"", b"", b""]
    assert listeners.refused_count == 3
    assert [(line["event"], line["reason"], line["count"]) for line in logged] == [
        ("connection.refused", "two fit", 1)
    ]
    _writers[0].close()
    await until_so(lambda: len(listeners._let_in) == 1)
    assert [await answer(port) for _ in range(2)] == [b"in", b""]


async def test_port_in_use_is_named_and_taken_once_it_is_free(listeners):
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    listeners = Listeners({"free": ListenerSettings(), "test": ListenerSettings(port=port)}, Clock())
    with pytest.raises(AddressInUse, match=f"^test: port {port} of 127.0.0.1 is in use$"):
        await listeners.bind()
    assert listeners.ports == {}
    with pytest.raises(AddressInUse):
        await listeners.bind_within(0.1)
    asyncio.get_running_loop().call_later(0.1, taken.close)
    await listeners.bind_within(5)
    assert listeners.ports["test"] == port
    listeners.close()


async def test_second_to_listen_on_a_port_that_both_bound_is_told(listeners):
    await listeners.bind()
    rival = Listeners({"test": ListenerSettings(port=listeners.ports["test"])}, Clock())
    await rival.bind()
    listeners.open({"test": Noted}, ConnectionRoom(1, ""))
    with pytest.raises(AddressInUse):
        rival.open({"test": Noted}, ConnectionRoom(1, ""))
    rival.close()


async def test_name_that_stands_for_no_address_is_told():
    listeners = Listeners({"test": ListenerSettings(bind="no-such-host.invalid")}, Clock())
    with pytest.raises(ListenError, match="^test: port 0 of no-such-host.invalid: "):
        await listeners.bind()


async def test_who_was_accepted_before_the_close_is_let_in(listeners):
    await listeners.bind()
    listeners.open({"test": Noted}, ConnectionRoom(10, ""))
    client = socket.create_connection(("127.0.0.1", listeners.ports["test"]), timeout=5)
    while not listeners._handing_over:  # the next turn of the loop ends it
        await turns()
    listeners.close()
    await listeners.let_in()
    assert len(listeners._let_in) == 1
    assert await asyncio.to_thread(client.recv, 10) == b"in"
    client.close()


async def test_accept_without_descriptors_is_tried_again_later(listeners, monkeypatch):
    monkeypatch.setattr(limits, "ACCEPT_PAUSE_MS", 200)
    await listeners.bind()
    listeners.open({"test": Noted}, ConnectionRoom(10, ""))
    original = socket.socket.accept

    def accept(self):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket.socket, "accept", accept)
    with capture_logs() as logged:
        waiting = asyncio.create_task(answer(listeners.ports["test"]))
        await until_so(lambda: logged)
        assert not waiting.done()
        monkeypatch.setattr(socket.socket, "accept", original)
        assert await waiting == b"in"
    assert [(line["event"], line["reason"]) for line in logged] == [
        ("connection.not_accepted", "Too many open files")
    ]


async def test_ipv6_listener_leaves_ipv4_to_others(listeners):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with socket.create_server(("0.0.0.0", 0)) as held:  # a port that no other program has over IPv4
        port = held.getsockname()[1]
        first = Listeners({"test": ListenerSettings(bind="::", port=port)}, Clock())
        await first.bind()
    second = Listeners({"test": ListenerSettings(bind="0.0.0.0", port=port)}, Clock())
    await second.bind()
    first.open({"test": Noted}, ConnectionRoom(1, ""))
    second.open({"test": Noted}, ConnectionRoom(1, ""))
    first.close()
    second.close()


async def test_listener_whose_port_nobody_chose_stays_closed_where_it_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        by_default = HttpListenerSettings.model_construct(_fields_set=set(), bind="127.0.0.1", port=port)
        made = Listeners({"other": ListenerSettings(), "http": by_default}, Clock())
        with capture_logs() as lines:
            await made.bind()
        assert list(made.ports) == ["other"]
        assert [line["event"] for line in lines] == ["listener.left_out"]
        made.close()
        chosen = Listeners({"http": HttpListenerSettings(port=port)}, Clock())
        with pytest.raises(AddressInUse):
            await chosen.bind()
