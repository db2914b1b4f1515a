"""What is left of a connection that ended: nothing that only the collector of reference cycles would find."""

import asyncio
import gc

import pytest

from broker.app import Broker
from tests.e2e import raw_mqtt as wire
from tests.e2e.raw_mqtt import RawMqtt
from tests.waiting import until_so

CONNECTIONS = 20
OURS = ("broker", "protocols", "queue_manager")


def mqtt_clients(port: int) -> None:
    """Subscribers of plain topics who publish there and to a queue; half of them say goodbye."""
    for number in range(CONNECTIONS):
        client = RawMqtt(port, client_id=f"device-{number}")
        client.send_bytes(wire.subscribe("plain/#"))
        client.expect(wire.SUBACK)
        for topic in ("elsewhere", "$queue/work"):
            client.send_bytes(wire.publish(topic, b"x", qos=1))
            client.expect(wire.PUBACK)
        if number % 2:
            client.send_bytes(wire.packet(wire.DISCONNECT, 0))
        client.drop()


@pytest.fixture
def in_circles():
    """Gives the classes of ours that only the collector of cycles found since, each name once an object."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)

    def collect() -> list[str]:
        gc.collect()
        kinds = [type(found) for found in gc.garbage]
        return [kind.__name__ for kind in kinds if kind.__module__.partition(".")[0] in OURS]

    yield collect
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


async def test_mqtt_connections_leave_no_circles_of_references(in_circles):
    async with Broker() as broker:
        await asyncio.to_thread(mqtt_clients, broker.ports["mqtt"])
        await until_so(lambda: not broker.hub.transports)
        assert in_circles() == []
