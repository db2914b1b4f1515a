"""MQTT clients on their way to the worker that they belong to, when it or another one ends."""

import socket
from collections.abc import Iterator

import pytest

from broker.network.home_gate import ClientHomes
from broker.workers.socket_passing import Told
from config import limits
from tests.e2e.raw_mqtt import CONNACK, V5, V311, RawMqtt, connect
from tests.e2e.several_workers import SeveralWorkers, several_workers
from tests.waiting import until

UNAVAILABLE = {V311: 0x03, V5: 0x88}
USE_ANOTHER_SERVER = 0x9C


@pytest.fixture(params=["workers", "nodes"])
def two(request: pytest.FixtureRequest) -> Iterator[SeveralWorkers]:
    with several_workers(2, are_nodes=request.param == "nodes") as several:
        yield several


def homes_of(two: SeveralWorkers, number: int) -> ClientHomes:
    homes = two.brokers[number]._homes
    assert homes is not None
    return homes


def asking(two: SeveralWorkers, at: int, home: int, version: int) -> RawMqtt:
    client = RawMqtt(two.port(at), version=None)
    client.send_bytes(connect(version, two.client_of(home)))
    return client


def answer(client: RawMqtt) -> int:
    code = client.expect(CONNACK).body[1]
    assert client.farewell() is None
    return code


@pytest.mark.parametrize("version", [V311, V5])
def test_client_that_connects_to_a_worker_that_is_ending_is_told_so(
    two: SeveralWorkers, version: int
) -> None:
    two.call(homes_of(two, 0).stop)
    for home in (0, 1):
        assert answer(asking(two, 0, home, version)) == UNAVAILABLE[version]


@pytest.mark.parametrize("version", [V311, V5])
def test_client_that_belongs_to_a_worker_that_is_ending_is_told_so(two: SeveralWorkers, version: int) -> None:
    two.call(homes_of(two, 1).stop)
    assert answer(asking(two, 0, 1, version)) == UNAVAILABLE[version]


@pytest.mark.parametrize("version", [V311, V5])
def test_client_on_its_way_from_a_worker_that_ends_is_told_so(
    two: SeveralWorkers, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLIENT_PASSING_TIMEOUT_S", 600)
    two.call(homes_of(two, 1).stop)
    client = asking(two, 0, 1, version)
    until(lambda: any(gate._passing for gate in list(homes_of(two, 0).gates)))
    two.run(two.brokers[0].stop())
    assert answer(client) == UNAVAILABLE[version]


class TestAtNodes:
    """... where the way to another worker is a relay."""

    @pytest.fixture
    def two(self) -> Iterator[SeveralWorkers]:
        with several_workers(2, are_nodes=True) as several:
            yield several

    @staticmethod
    def listener(two: SeveralWorkers, number: int):
        workers = two.brokers[number]._workers
        assert workers is not None
        assert workers.node_listener is not None
        return workers.node_listener

    @pytest.mark.parametrize("version", [V311, V5])
    def test_client_whose_worker_ends_before_it_answers_is_told_so(
        self, two: SeveralWorkers, version: int
    ) -> None:
        def end(connection: socket.socket, told: Told, said: bytes) -> None:
            connection.close()

        self.listener(two, 1).on_client = end
        assert answer(asking(two, 0, 1, version)) == UNAVAILABLE[version]

    @pytest.mark.parametrize(("version", "code"), [(V311, 0x03), (V5, USE_ANOTHER_SERVER)])
    def test_client_whose_shard_moves_before_it_is_answered_is_sent_there_if_it_can_be(
        self, two: SeveralWorkers, version: int, code: int
    ) -> None:
        place = homes_of(two, 0).place
        assert place.node is not None
        peers = place.node.peers
        taken: list[socket.socket] = []
        self.listener(two, 1).on_client = lambda connection, told, said: taken.append(connection)
        client = asking(two, 0, 1, version)
        until(lambda: taken)
        peers.view = {
            "own": "n0",
            "nodes": [{"name": "n2", "client_address": "there:1883"}],
            "shards": [{"shard": 1, "node": "n2", "moves_to": None}],
        }
        two.call(lambda: peers.take({1: ("127.0.0.1", 1)}))
        assert answer(client) == code
        taken[0].close()

    def test_client_that_is_served_ends_when_the_shard_moves(self, two: SeveralWorkers) -> None:
        place = homes_of(two, 0).place
        assert place.node is not None
        peers = place.node.peers
        client = asking(two, 0, 1, V5)
        assert client.expect(CONNACK).body[1] == 0
        two.call(lambda: peers.take({1: ("127.0.0.1", 1)}))
        assert client.farewell() is None
