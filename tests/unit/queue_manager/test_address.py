import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_manager.address import (
    CONTROL_VERBS,
    address_of,
    canonical,
    is_queue_topic,
    parse,
    queue_of,
    routing_key,
    validate_group_name,
    validate_queue_name,
)
from queue_manager.errors import InvalidAddress

names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\x1d\x1e\x1f"), min_size=1, max_size=30
)
levels = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="$/")), max_size=4)


@given(names, levels, st.sampled_from(["", *sorted(CONTROL_VERBS)]))
def test_an_address_is_taken_apart_into_name_rest_and_verb(name: str, rest: list[str], verb: str) -> None:
    topic = "/".join([address_of(name), *rest, *([verb] if verb else [])])
    address = parse(topic)
    assert (address.name, address.rest, address.verb) == (name, "/".join(rest), verb)


@pytest.mark.parametrize(
    ("topic", "name", "rest", "verb"),
    [
        ("$queue/orders", "orders", "", ""),
        ("$queue/orders/", "orders", "", ""),
        ("$queue/orders/eu/1", "orders", "eu/1", ""),
        ("$queue/orders/$ack", "orders", "", "$ack"),
        ("$queue/orders/eu/$extend", "orders", "eu", "$extend"),
        ("$queue/orders/+/#", "orders", "+/#", ""),
        ("$queue/orders/a$ack", "orders", "a$ack", ""),
        ("$queue/é/x", "é", "x", ""),
        ("$queue/a%2Fb/x", "a/b", "x", ""),
        ("$queue/a%2fb/%2F", "a/b", "%2F", ""),
        ("$queue/%24ack/$ack", "$ack", "", "$ack"),
        ("$queue/%23%2B", "#+", "", ""),
        ("$queue/a%252Fb", "a%2Fb", "", ""),
        ("$queue/50%/x", "50%", "x", ""),
    ],
)
def test_examples(topic: str, name: str, rest: str, verb: str) -> None:
    address = parse(topic)
    assert (address.name, address.rest, address.verb) == (name, rest, verb)


@pytest.mark.parametrize(
    "topic",
    [
        "orders",
        "$queue",
        "$queue/",
        "$queue//eu",
        "$queue/+/eu",
        "$queue/#",
        "$queue/a\0b",
        "$queue/a+b",
        "$queue/a#/x",
        "$queue/$queue",
        "$queue/%24queue",
        "$queue/%24queue%2Fa",
        "$queue/$ack",
        "$queue/orders/$frobnicate",
        "$queue/orders/$ack/eu",
        "$queue/orders/$nack/$ack",
        "$queue/" + "x" * 256,
        "$queue/" + "é" * 128,
    ],
)
def test_unusable_addresses_are_refused(topic: str) -> None:
    with pytest.raises(InvalidAddress):
        parse(topic)


def test_a_name_has_at_most_255_bytes() -> None:
    assert validate_queue_name("x" * 255) == "x" * 255
    assert validate_queue_name("é" * 127) == "é" * 127
    for name in ("", "x" * 256, "é" * 128):
        with pytest.raises(InvalidAddress):
            validate_queue_name(name)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b", "a\x1fb", "a@b"])
def test_group_names_leave_out_what_separates_them(name: str) -> None:
    with pytest.raises(InvalidAddress):
        validate_group_name(name)


def test_group_names_may_have_slashes() -> None:
    assert validate_group_name("team/a") == "team/a"


@pytest.mark.parametrize(
    ("topic", "is_queue"),
    [("$queue", True), ("$queue/x", True), ("$queues/x", False), ("queue/x", False), ("a/$queue/x", False)],
)
def test_is_queue_topic(topic: str, is_queue: bool) -> None:
    assert is_queue_topic(topic) is is_queue


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        ("$queue/orders", ""),
        ("$queue/orders/eu/1", "eu/1"),
        ("$queue/orders2/eu", "$queue/orders2/eu"),
        ("shop/eu", "shop/eu"),
        ("orders", ""),
    ],
)
def test_the_routing_key_is_what_follows_the_queue_s_name(topic: str, key: str) -> None:
    assert routing_key(topic, "orders") == key


@pytest.mark.parametrize(
    ("topic", "name", "key"),
    [
        ("$queue/a%2Fb/eu", "a/b", "eu"),
        ("$queue/a%2fb/eu", "vhost\x1da/b", "eu"),
        ("$queue/a%2Fb", "a/b", ""),
        ("a/b", "a/b", ""),
        ("$queue/a/b", "a/b", "$queue/a/b"),
        ("$queue/a/b", "a", "b"),
        ("$queue/%24ack/eu", "$ack", "eu"),
    ],
)
def test_the_routing_key_follows_a_name_that_is_written_with_codes(topic: str, name: str, key: str) -> None:
    assert routing_key(topic, name) == key


@pytest.mark.parametrize(
    ("topic", "written"),
    [
        ("$queue/a%2fb/eu%2f", "$queue/a%2Fb/eu%2f"),
        ("$queue/50%25", "$queue/50%"),
        ("$queue/v%2Fh\x1da%2fb/#", "$queue/v%2Fh\x1da%2Fb/#"),
        ("shop/a%2fb", "shop/a%2fb"),
        ("$queue/orders/eu", "$queue/orders/eu"),
    ],
)
def test_an_address_has_one_canonical_form(topic: str, written: str) -> None:
    assert canonical(topic) == written
    assert canonical(written) == written


def test_codes_in_the_name_of_a_virtual_host_stand_for_themselves() -> None:
    assert address_of("50%2F\x1da/b") == "$queue/50%2F\x1da%2Fb"
    assert queue_of("$queue/50%2F\x1da%2Fb/eu") == "50%2F\x1da/b"
