"""Ports that are taken once, for several processes that will listen there."""

import socket
from pathlib import Path

import pytest

from broker.clock import Clock
from broker.network.listening import AddressInUse, Listeners
from broker.network.reserved_ports import ReservedPorts
from config.settings import (
    AmqpListenerSettings,
    HttpListenerSettings,
    ListenersSettings,
    MqttListenerSettings,
)

FREE = ListenersSettings(mqtt=MqttListenerSettings(port=0), amqp=AmqpListenerSettings(port=0))


def port_of(settings: ListenersSettings, name: str) -> int:
    return settings.opened()[name].port


async def test_several_bind_to_a_reserved_port_and_nobody_else_does() -> None:
    reserved = ReservedPorts(FREE)
    settings = reserved.in_settings(FREE)
    workers = [Listeners(settings.opened(), Clock(), shares_ports=True) for _ in range(2)]
    try:
        for worker in workers:
            await worker.bind()
        assert workers[0].ports == workers[1].ports
        with pytest.raises(AddressInUse):
            await Listeners(settings.opened(), Clock()).bind()
        with pytest.raises(AddressInUse):
            ReservedPorts(settings)
    finally:
        for worker in workers:
            worker.close()
        reserved.give_back()


async def test_reserved_port_is_refused_to_others_before_anybody_listens() -> None:
    reserved = ReservedPorts(FREE)
    settings = reserved.in_settings(FREE)
    try:
        with pytest.raises(AddressInUse):
            await Listeners(settings.opened(), Clock()).bind()
        with pytest.raises(AddressInUse):
            ReservedPorts(settings)
    finally:
        reserved.give_back()
    ReservedPorts(settings).give_back()


def test_all_addresses_of_a_name_have_one_port() -> None:
    settings = ListenersSettings(mqtt=MqttListenerSettings(bind="localhost", port=0))
    reserved = ReservedPorts(settings)
    try:
        assert len({bound.getsockname()[1] for bound in reserved._sockets}) == 1
    finally:
        reserved.give_back()


def test_refusal_gives_back_what_was_taken(tmp_path: Path) -> None:
    path = tmp_path / "clients"
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = ListenersSettings(
            mqtt=MqttListenerSettings(port=0, unix_socket=str(path)),
            amqp=AmqpListenerSettings(port=other.getsockname()[1]),
        )
        with pytest.raises(AddressInUse, match="amqp: port"):
            ReservedPorts(settings)
    assert not path.exists()


def test_http_port_that_nobody_chose_and_somebody_has_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        by_default = HttpListenerSettings.model_construct(set(), port=other.getsockname()[1])
        settings = ListenersSettings.model_construct(mqtt=MqttListenerSettings(port=0), http=by_default)
        reserved = ReservedPorts(settings)
        assert list(reserved.in_settings(settings).opened()) == ["mqtt"]
        reserved.give_back()


def test_port_that_was_changed_since_stays_as_it_is_wanted() -> None:
    reserved = ReservedPorts(FREE)
    try:
        changed = FREE.model_copy(update={"amqp": AmqpListenerSettings(port=5673)})
        settings = reserved.in_settings(changed)
        assert port_of(settings, "amqp") == 5673
        assert port_of(settings, "mqtt") not in (0, 1883)
    finally:
        reserved.give_back()
