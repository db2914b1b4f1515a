"""How long the end of a broker waits for the answers of its clients."""

from types import SimpleNamespace
from typing import Any

from broker.clients.farewell import Farewell
from broker.clock import Clock


class Silent:
    """A client that does not answer."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.is_ended = False

    def send_away(self, why: Any) -> None:
        self.told.append(why)

    def abort(self) -> None:
        self.is_ended = True


async def test_client_that_does_not_answer_is_waited_for_as_long_as_is_said():
    clock, client = Clock(), Silent()
    hub: Any = SimpleNamespace(transports={client: None}, clock=clock)
    began = clock.monotonic()
    await Farewell(0.2).say(hub, (), confirms=False)
    assert 0.2 <= clock.monotonic() - began < 0.8
    assert client.told
    assert client.is_ended
