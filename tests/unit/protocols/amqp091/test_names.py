"""Names of exchanges and queues."""

import pytest

from protocols.amqp091.names import PREDECLARED_EXCHANGES, is_reserved_name, is_valid_name


@pytest.mark.parametrize("name", ["orders", "$queue/orders/#", "a b", "größe", "x" * 255, ""])
def test_ordinary_names_are_valid(name):
    assert is_valid_name(name)


@pytest.mark.parametrize("name", ["a\0b", "line\nbreak", "x" * 256, "ä" * 128, "\x7f"])
def test_control_characters_and_long_names_are_invalid(name):
    assert not is_valid_name(name)


def test_amq_names_are_reserved():
    assert all(is_reserved_name(name) for name in PREDECLARED_EXCHANGES if name)
    assert not is_reserved_name("amqp")
