"""broker.properties.amqp10_sections.may_name_user: no user-id is overlooked, whatever the properties are."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.properties.amqp10 import property_of
from broker.properties.amqp10_sections import PublishReader, may_name_user
from protocols.amqp10 import types as t
from tests.e2e.raw_amqp10 import message

IDS = [None, t.ULong(0), t.ULong(5), t.ULong(2**40), UUID(int=1), b"bytes", "text", "x" * 300]


@pytest.mark.parametrize("message_id", IDS, ids=lambda value: type(value).__name__ + str(value)[:8])
@pytest.mark.parametrize("user_id", [None, b"guest"])
@pytest.mark.parametrize("annotations", [None, {"x-a": 1}])
def test_a_user_id_is_never_overlooked(
    message_id: object, user_id: bytes | None, annotations: dict[str, int] | None
) -> None:
    whole = message(b"x", message_id=message_id, user_id=user_id, subject="s", annotations=annotations)
    block = PublishReader().read(whole).block
    assert property_of(block, "user-id") == user_id
    assert may_name_user(block) or user_id is None
    if annotations is None and len(str(message_id)) < 100:
        assert may_name_user(block) is (user_id is not None)


def test_what_has_no_properties_names_nobody() -> None:
    assert not may_name_user(b"")
    block = PublishReader().read(message(b"x", message_id=t.ULong(1))).block
    assert not may_name_user(block)
