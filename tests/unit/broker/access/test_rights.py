"""broker.access.rights: which names permissions cover."""

import pytest

from broker.access.rights import EVERYTHING, Action, Grant, Kind, Rights, TopicGrant

CONFIGURE, WRITE, READ = Action.CONFIGURE, Action.WRITE, Action.READ


def rights(grant, user="alice", client_id="device-7", vhost="/"):
    return Rights(grant, user=user, client_id=client_id, vhost=vhost)


def test_each_action_has_its_own_pattern():
    may = rights(Grant(configure="^a", write="^b", read="^c"))
    assert may.cover(CONFIGURE, Kind.QUEUE, "a1")
    assert may.cover(WRITE, Kind.QUEUE, "b1")
    assert may.cover(READ, Kind.QUEUE, "c1")
    assert not may.cover(CONFIGURE, Kind.QUEUE, "b1")
    assert not may.cover(WRITE, Kind.QUEUE, "c1")
    assert not may.cover(READ, Kind.QUEUE, "a1")


def test_a_pattern_is_found_anywhere_in_a_name_and_the_empty_one_nowhere():
    may = rights(Grant(read="b", write="^$"))
    assert may.cover(READ, Kind.QUEUE, "abc")
    assert not may.cover(CONFIGURE, Kind.QUEUE, "")
    assert not may.cover(CONFIGURE, Kind.QUEUE, "abc")
    assert may.cover(WRITE, Kind.QUEUE, "")


def test_an_end_anchor_does_not_cover_a_name_with_a_line_feed_more():
    may = rights(Grant(read="^orders$"))
    assert may.cover(READ, Kind.QUEUE, "orders")
    assert not may.cover(READ, Kind.QUEUE, "orders\n")


def test_who_may_write_to_the_default_exchange_may_write_to_every_queue():
    may = rights(Grant(write=r"^amq\.default$"))
    assert may.cover(WRITE, Kind.EXCHANGE, "")
    assert may.cover(WRITE, Kind.QUEUE, "any")
    assert may.cover(WRITE, Kind.ADDRESS, "$queue/any/key")
    assert not may.cover(WRITE, Kind.EXCHANGE, "amq.topic")
    assert not may.cover(WRITE, Kind.TOPIC, "any")


def test_an_address_is_covered_by_its_queue_whatever_that_is_called():
    may = rights(Grant(read="^team/orders$"))
    assert may.cover(READ, Kind.QUEUE, "team/orders")
    assert may.cover(READ, Kind.ADDRESS, "$queue/team%2Forders/eu")
    assert may.cover(READ, Kind.ADDRESS, "$queue/team%2forders/eu")
    assert not may.cover(READ, Kind.ADDRESS, "$queue/team/orders")
    assert not may.cover(READ, Kind.ADDRESS, "$queue/team%252Forders")
    assert not rights(Grant(read="^team$")).cover(READ, Kind.ADDRESS, "$queue/team%2Forders")


def test_an_address_is_covered_by_its_queue():
    may = rights(Grant(read="^orders$"))
    assert may.cover(READ, Kind.ADDRESS, "$queue/orders")
    assert may.cover(READ, Kind.ADDRESS, "$queue/orders/eu/#")
    assert may.cover(READ, Kind.ADDRESS, "$queue/orders/$ack")
    assert not may.cover(READ, Kind.ADDRESS, "$queue/orders2")
    assert not may.cover(READ, Kind.ADDRESS, "$queue/x/orders")


def test_groups_have_a_pattern_of_their_own():
    assert rights(Grant(read="^orders$")).cover(READ, Kind.GROUP, "any")
    may = rights(Grant(read="^orders$", groups="^a$"))
    assert may.cover(READ, Kind.GROUP, "a")
    assert not may.cover(READ, Kind.GROUP, "b")


def test_topics_are_covered_by_their_name_or_by_the_topic_exchange():
    assert rights(Grant(write="^a/")).cover(WRITE, Kind.TOPIC, "a/b")
    assert not rights(Grant(write="^a/")).cover(WRITE, Kind.TOPIC, "b/a/")
    assert rights(Grant(write=r"^amq\.topic$")).cover(WRITE, Kind.TOPIC, "any/thing")


def test_topic_permissions_narrow_the_topics_of_an_exchange():
    own = TopicGrant("amq.topic", write=r"^{username}\.", read=r"^news\.")
    may = rights(Grant(write=".*", read=".*", topics=(own,)), user="a.b")
    assert may.cover(WRITE, Kind.TOPIC, "a/b/x")
    assert not may.cover(WRITE, Kind.TOPIC, "a.b.x")  # whose key is a/b/x
    assert may.cover_keys(WRITE, "amq.topic", "a.b.x")
    assert not may.cover_keys(WRITE, "amq.topic", "aXb.x")  # the user's name is no expression
    assert may.cover_keys(WRITE, "another", "anything")
    assert may.cover(READ, Kind.TOPIC, "news/today")
    assert not may.cover(READ, Kind.TOPIC, "secret")
    assert not may.cover_all_topics(READ)
    assert rights(EVERYTHING).cover_all_topics(READ)


@pytest.mark.parametrize(
    ("pattern", "binding", "covered"),
    [
        (r"^a(\.|$)", "a.#", True),
        (r"^a\.", "a.#", False),  # which matches a, too
        (r"^a\.", "a.*.c", True),
        (r"^a\.", "#", False),
        (r"^a\.", "*.b", False),
        (r"^a\..$", "a.*", False),  # covers a.*, but not all that it matches
        (r"^a\.[^.]+$", "a.#", False),
        (r"^(?!secret)", "#", False),
        (r"^(?!secret)", "news", True),
        (".*", "#", True),
    ],
)
def test_a_binding_is_covered_when_all_it_matches_is(pattern, binding, covered):
    may = rights(Grant(read=".*", topics=(TopicGrant("x", "", pattern),)))
    assert may.cover_keys(READ, "x", binding) is covered


@pytest.mark.parametrize(
    ("rule", "wanted", "covered"),
    [
        ("devices/%c/#", "devices/device-7/up", True),
        ("devices/%c/#", "devices/device-7", True),
        ("devices/%c/#", "devices/device-7/#", True),
        ("devices/%c/#", "devices/device-8/up", False),
        ("devices/%c/#", "devices/+/up", False),
        ("devices/%c/#", "devices/#", False),
        ("devices/%c/#", "#", False),
        ("users/%u/+", "users/alice/x", True),
        ("users/%u/+", "users/alice/#", False),
        ("users/%u/+", "users/alice/+", True),
        ("users/%u/+", "users/alice", False),
        ("#", "$queue/orders", False),
        ("+/orders", "$queue/orders", False),
        ("$queue/orders/eu/#", "$queue/orders/eu/x", True),
        ("$queue/orders/eu/#", "$queue/orders/#", False),
    ],
)
def test_acl_rules_cover_filters_that_match_nothing_more(rule, wanted, covered):
    may = rights(Grant(rules=((READ, rule),)))
    kind = Kind.ADDRESS if wanted.startswith("$queue/") else Kind.FILTER
    assert may.cover(READ, kind, wanted) is covered
    assert not may.cover(WRITE, kind, wanted)


@pytest.mark.parametrize("client_id", ["", "#", "+", "a/b"])
def test_a_rule_with_a_variable_is_void_for_a_client_whose_name_would_widen_it(client_id):
    may = rights(Grant(rules=((READ, "devices/%c/#"),)), client_id=client_id)
    assert not may.cover(READ, Kind.TOPIC, "devices/a/b")
    assert not may.cover(READ, Kind.TOPIC, f"devices/{client_id}/b")
