"""The bridge writes queues' names into addresses as the broker reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.name_rules import queue_level
from spark_bridge.address import queue_address


@pytest.mark.parametrize("name", ["orders", "a/b", "#", "a+b", "$ack", "50%", "a%2Fb", "%"])
def test_names_that_a_level_cannot_hold(name):
    assert queue_address(name) == f"$queue/{queue_level(name)}"


@given(st.text("%/#+$2345BFbfx", max_size=12))
def test_any_name(name):
    assert queue_address(name) == f"$queue/{queue_level(name)}"
