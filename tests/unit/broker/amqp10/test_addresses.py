"""broker.amqp10.connection.addresses: where targets lead to and sources come from."""

from __future__ import annotations

import pytest

from broker.amqp10.connection.addresses import Node, SourceNode, queue_address, source_node, target_node
from queue_manager.errors import InvalidAddress


@pytest.mark.parametrize(
    ("address", "node"),
    [
        ("/queues/jobs", Node("", "jobs")),
        ("/queues/a%20b%2F%C3%A4", Node("", "a b/ä")),
        ("/exchanges/orders/eu.de", Node("orders", "eu.de")),
        ("/exchanges/orders/eu%2Fde", Node("orders", "eu/de")),
        ("/exchanges/orders", Node("orders", "")),
        ("/exchanges/orders/", Node("orders", "")),
        ("$queue/jobs", Node("", "$queue/jobs")),
        ("$queue/jobs/eu/de", Node("", "$queue/jobs/eu/de")),
    ],
)
def test_the_address_of_a_target_names_an_exchange_and_a_key(address: str, node: Node) -> None:
    assert target_node(address) == node


@pytest.mark.parametrize(
    ("address", "node"),
    [
        ("/queues/jobs", SourceNode("jobs")),
        ("/queues/%24strange", SourceNode("$strange")),
        ("$queue/jobs", SourceNode("jobs", "", "$queue/jobs")),
        ("$queue/jobs/eu/#", SourceNode("jobs", "eu/#", "$queue/jobs/eu/#")),
    ],
)
def test_the_address_of_a_source_names_a_queue_and_a_pattern(address: str, node: SourceNode) -> None:
    assert source_node(address) == node


@pytest.mark.parametrize(
    "address",
    [
        "",
        "jobs",
        "/queue/jobs",
        "/topic/a.b",
        "/queues/",
        "/queues/a b",
        "/queues/%zz",
        "/queues/%ff",
        "/queues/a/b",
        "/exchanges//key",
        "/exchanges/amq.default/key",
        "/exchanges/e/a/b",
        "$queue/jobs/$ack",
    ],
)
def test_what_names_nothing_is_no_target(address: str) -> None:
    with pytest.raises(InvalidAddress):
        target_node(address)


@pytest.mark.parametrize("address", ["", "jobs", "/exchanges/e/k", "/queues/", "$queue/jobs/$browse"])
def test_what_is_no_queue_is_no_source(address: str) -> None:
    with pytest.raises(InvalidAddress):
        source_node(address)


@pytest.mark.parametrize("name", ["jobs", "a b/ä", "100%", "$queue"])
def test_the_address_of_a_queue_leads_back_to_it(name: str) -> None:
    assert source_node(queue_address(name)) == SourceNode(name)
