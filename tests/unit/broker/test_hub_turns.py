"""broker.vhosts.hub: many connections are written to, and asked for their deadlines, in steps."""

import asyncio

import pytest

from broker.access.access import Access
from broker.clock import Clock
from broker.vhosts.hub import Hub
from config import limits
from config.access_settings import AccessSettings
from config.settings import Settings
from tests.waiting import turns


class Nothing:
    """A core without work."""

    events = None

    class turns:
        @staticmethod
        def has_work() -> bool:
            return False

        @staticmethod
        def announce() -> None:
            pass

    class commits:
        @staticmethod
        def on_committed(call) -> None:
            pass


class Busy:
    """A core that notes when it is asked to do what there is."""

    def __init__(self, log: list) -> None:
        self.turns = self
        self.commits = self
        self.events = None
        self.tell = None
        self._log = log
        self._has_work = False

    def publish(self) -> None:
        self._has_work = True

    def has_work(self) -> bool:
        return self._has_work

    def announce(self) -> None:
        self._log.append("announced")

    def settle(self) -> None:
        self._has_work = False
        self._log.append("settled")

    def on_committed(self, call) -> None:
        self.tell = call


class Peer:
    def __init__(self, log: list["Peer"]) -> None:
        self._log = log

    def flush(self) -> None:
        self._log.append(self)

    def check_deadline(self, now: float) -> None:
        self._log.append(self)


@pytest.fixture
async def hub(monkeypatch):
    monkeypatch.setattr(limits, "FLUSHES_PER_TURN_MAX", 3)
    monkeypatch.setattr(limits, "DEADLINES_PER_TURN_MAX", 3)
    return Hub(Settings(), Nothing, Access(AccessSettings(), Clock()), Clock(), asyncio.get_running_loop())


async def test_flushes_go_in_order_and_leave_turns_to_others(hub):
    done: list[Peer] = []
    peers = [Peer(done) for _ in range(8)]
    for peer in peers:
        hub.want_flush(peer)
    seen = []
    for _ in range(4):
        await turns()
        seen.append(len(done))
    assert seen == [3, 6, 8, 8]
    assert done == peers
    hub.want_flush(peers[0])
    await turns()
    assert len(done) == 9


async def test_answers_are_written_before_what_others_receive(hub, monkeypatch):
    monkeypatch.setattr(limits, "ANSWERS_PER_TURN_MAX", 2)
    done: list[Peer] = []
    peers = [Peer(done) for _ in range(8)]
    for peer in peers[:5]:
        hub.want_flush(peer)
    for peer in peers[5:]:
        hub.want_answer(peer)
    await turns()
    assert done == [*peers[5:7], *peers[:3]]
    hub.disconnected(peers[7])
    await turns(2)
    assert done == [*peers[5:7], *peers[:5]]


async def test_few_of_many_are_written_to_so_that_their_next_messages_can_join(hub, monkeypatch):
    monkeypatch.setattr(limits, "FLUSHES_PER_TURN_MAX", 256)
    done: list[Peer] = []
    for count, written in ((1_000, limits.FLUSHES_PER_TURN_MIN), (6_400, 100), (20_000, 256)):
        for _ in range(count):
            hub.want_flush(Peer(done))
        await turns()
        assert len(done) == written
        await turns(count // written + limits.FLUSH_TURNS * 3)
        assert len(done) == count
        done.clear()


async def test_connection_lost_between_two_steps_is_not_written_to(hub):
    done: list[Peer] = []
    peers = [Peer(done) for _ in range(5)]
    for peer in peers:
        hub.connected(peer)
        hub.want_flush(peer)
    await turns()
    hub.disconnected(peers[3])
    await turns()
    assert done == [*peers[:3], peers[4]]


async def test_connection_lost_between_two_steps_is_not_asked_for_its_deadline(hub):
    done: list[Peer] = []
    peers = [Peer(done) for _ in range(5)]
    for peer in peers:
        hub.connected(peer)
    asking = asyncio.create_task(hub.check_deadlines(0.0))
    await turns()
    assert len(done) == 3
    hub.disconnected(peers[4])
    await asking
    assert done == peers[:4]


def make_hub(core) -> Hub:
    return Hub(Settings(), core, Access(AccessSettings(), Clock()), Clock(), asyncio.get_running_loop())


async def test_what_connections_say_in_one_turn_is_settled_once_before_anything_is_written():
    log: list = []
    core = Busy(log)
    hub = make_hub(core)
    peer = Peer(log)
    for _ in range(3):  # chunks of three connections
        core.publish()
        hub.want_settle()
        hub.want_flush(peer)
    assert log == ["announced"]
    await turns()
    assert log == ["announced", "settled", peer]
    core.publish()
    hub.want_settle()
    await turns()
    assert log[3:] == ["announced", "settled"]


async def test_who_waited_for_a_commit_is_written_to_with_it():
    log: list = []
    core = Busy(log)
    hub = make_hub(core)
    peer = Peer(log)
    hub.want_flush(peer)
    core.tell()  # type: ignore[misc]
    assert log == [peer]
    await turns()
    assert log == [peer], "it has nothing more to write"


async def test_failure_to_write_to_one_ends_that_connection_and_no_other():
    log: list = []

    class Broken(Peer):
        def flush(self) -> None:
            raise RuntimeError("a bug")

        def abort(self) -> None:
            log.append("aborted")

    hub = make_hub(Busy(log))
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    peer = Peer(log)
    hub.want_flush(Broken(log))
    hub.want_flush(peer)
    await turns()
    assert log == ["aborted", peer]
    assert [str(error) for error in told] == ["a bug"]
    hub.want_flush(peer)
    await turns()
    assert log == ["aborted", peer, peer]
