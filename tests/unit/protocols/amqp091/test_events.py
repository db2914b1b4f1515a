"""Events are plain objects without a dict."""

import inspect

import pytest

from protocols.amqp091 import events

CLASSES = [cls for _, cls in inspect.getmembers(events, inspect.isclass) if cls.__module__ == events.__name__]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_each_event_has_slots_and_a_docstring(cls):
    assert "__slots__" in vars(cls)
    assert cls.__doc__


def test_contexts_are_for_the_front_end():
    address = events.PublishAddress("e", "k", True)
    shape = events.PublishShape(address, b"\0\0")
    assert shape.address is address
    assert shape.context is None
    assert address.context is None
