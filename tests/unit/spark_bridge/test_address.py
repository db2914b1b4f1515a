"""The bridge writes queues' names into addresses as the broker reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.name_rules import queue_level
from spark_bridge.address import key_in_address, key_in_queue, queue_address


@pytest.mark.parametrize("name", ["orders", "a/b", "#", "a+b", "$ack", "50%", "a%2Fb", "%"])
def test_names_that_a_level_cannot_hold(name):
    assert queue_address(name) == f"$queue/{queue_level(name)}"


@given(st.text("%/#+$2345BFbfx", max_size=12))
def test_any_name(name):
    assert queue_address(name) == f"$queue/{queue_level(name)}"


@pytest.mark.parametrize(
    ("exchange", "published", "key"),
    [
        ("", "b1", None),
        ("", "$queue/b1", None),
        ("", "$queue/b1/eu", "eu"),
        ("", "$queue/b1/eu/x", "eu/x"),
        ("", "$queue/b10/eu", "$queue/b10/eu"),
        ("", "other", "other"),
        ("amq.topic", "b1", "b1"),
    ],
)
def test_the_routing_key_of_a_message_is_without_its_queues_own_address(exchange, published, key):
    assert key_in_queue("b1", exchange, published) == key


@given(st.text(min_size=1, max_size=12).filter(lambda name: name != "$queue"), st.text(max_size=12))
def test_a_routing_key_survives(queue, key):
    written = f"{queue_address(queue)}/{key}" if key else queue
    assert key_in_queue(queue, "", written) == (key or None)


def test_of_another_queues_address_what_follows_its_name_is_written():
    assert [*map(key_in_address, ("$queue/b1/eu/x", "$queue/b1", "eu", ""))] == ["eu/x", "", "eu", ""]
