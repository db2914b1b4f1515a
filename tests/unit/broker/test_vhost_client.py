"""broker.engine.vhost_client: the client of a virtual host, over the one of the shard."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any, get_args, get_type_hints

import pytest

from broker.app import Broker
from broker.engine import client as stated
from broker.engine.call_names import Told
from broker.engine.client import ShardClient
from broker.engine.vhost_client import VhostClient
from queue_manager.address import local_name
from queue_manager.api import BindingDefinition, ExchangeDeclaration, QueueDeclaration
from queue_manager.policy import QueuePolicy

# what a call takes as text and is no name of a queue, an exchange, or a virtual host
OTHER_TEXTS = {
    "caller",
    "checksum",
    "consumer_id",
    "group",
    "group_id",
    "group_name",
    "group_selector",
    "key",
    "keys",
    "pattern",
    "producer",
    "producers",
    "selector",
    "start",
    "state",
}
OF_OTHER_CALLS = {
    ("GroupClient", "create", "name"),  # of a group
    ("GroupClient", "reset", "to"),  # a place in the queue
    ("MessageClient", "cancel_scheduled", "name"),  # of a message
    ("PublishingClient", "plan", "topic"),  # what messages have, as the publisher said it
    ("PublishingClient", "plan", "exchange"),
    ("PublishingClient", "route", "user"),
    ("PublishingClient", "open_to", "publisher"),  # who asks, as the core knows it
}
POLICY = QueuePolicy(visibility_timeout_ms=30_000, message_bytes_max=1_000)
PARTS = ("Queue", "Exchange", "Group", "Message", "Stream", "Epoch", "Publishing", "Consuming", "Settling")


def orders(topics: tuple[str, ...] = ()) -> QueueDeclaration:
    return QueueDeclaration(name="orders", durable=True, policy=POLICY, topics=topics)


@pytest.mark.parametrize("part", [f"{subject}Client" for subject in PARTS])
def test_every_text_of_a_call_is_stated_as_a_name_or_known_to_be_none(part: str) -> None:
    unstated = set()
    for name, call in inspect.getmembers(getattr(stated, part), inspect.isfunction):
        if name.startswith("_"):
            continue
        for parameter, hint in get_type_hints(call, include_extras=True).items():
            is_text = hint is str or (str in get_args(hint) and not isinstance(get_args(hint)[-1], Told))
            if is_text and parameter != "return" and parameter not in OTHER_TEXTS:
                unstated.add((part, name, parameter))
    assert unstated <= OF_OTHER_CALLS


@pytest.fixture
async def client() -> AsyncIterator[ShardClient]:
    async with Broker() as broker:
        yield broker.hub.client


async def names_in_the_core(client: ShardClient) -> list[str]:
    shard: Any = client
    return sorted(queue.name for queue in shard.shard.manager.queues)


async def test_names_of_a_virtual_host_are_others_in_the_core_and_never_seen(client: ShardClient) -> None:
    inside = VhostClient(client, "plant")
    topics = ("$queue/orders/#", "sensors/#")
    await client.queues.declare(QueueDeclaration(name="orders", durable=True, policy=POLICY))
    made = await inside.queues.declare(
        QueueDeclaration(name="orders", durable=True, policy=POLICY, topics=topics)
    )
    assert (made.name, made.is_new) == ("orders", True)
    assert await names_in_the_core(client) == ["orders", "plant\x1dorders"]
    assert await inside.queues.names() == await client.queues.names() == ["orders"]
    (view,) = await inside.queues.views()
    assert (view.name, view.topics) == ("orders", topics)
    assert [each.name for each in await inside.queues.views(["none", "orders"])] == ["orders"]

    await inside.exchanges.declare(ExchangeDeclaration(name="bids", type="direct", durable=True))
    binding = BindingDefinition(source="bids", destination="orders", routing_key="eu")
    await inside.exchanges.bind(binding)
    assert await inside.exchanges.bindings(queue="orders") == [binding]
    assert binding in await inside.exchanges.bindings()
    assert "bids" in [exchange.name for exchange in await inside.exchanges.views()]
    assert "bids" not in [exchange.name for exchange in await client.exchanges.views()]

    created = await inside.groups.create("orders", "readers")
    assert (created.queue, (await inside.groups.views("orders"))[0].queue) == ("orders", "orders")
    assert await client.groups.views("orders") == []


async def test_queue_that_is_given_out_has_its_local_name_and_is_taken_back(client: ShardClient) -> None:
    inside = VhostClient(client, "plant")
    await inside.queues.declare(orders())
    source = inside.consuming.find("orders")
    assert (source.name, source.policy) == ("orders", POLICY)
    puller = inside.consuming.puller(source, sink=None, consumer_id="c", lease_ms=1_000)  # type: ignore[arg-type]
    assert not inside.consuming.is_gone(puller)
    assert not inside.consuming.is_stream("orders")
    targets = inside.publishing.match("$queue/orders/eu")
    assert [local_name(queue.name) for queue in targets.queues] == ["orders"]
    assert not client.publishing.match("$queue/orders/eu")


def test_calls_without_names_are_those_of_the_shard_s_client() -> None:
    class Part:
        creates_queues = True

        def within(self, vhost: str) -> str:
            return f"sessions of {vhost}"

        def __getattr__(self, name: str) -> Any:
            return name

    inside: Any = VhostClient(Everything(Part()), "plant")  # type: ignore[arg-type]
    assert (inside.publishing.publish, inside.settling.ack) == ("publish", "ack")
    assert inside.publishing.creates_queues
    assert inside.sessions == "sessions of plant"


class Everything:
    """A client all of whose parts are one."""

    def __init__(self, part: object) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return self._part
