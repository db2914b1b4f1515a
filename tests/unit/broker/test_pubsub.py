"""broker.mqtt.topology.pubsub: who gets a topic, share groups in turn."""

import gc
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import broker.mqtt.topology.pubsub as pubsub_module
from broker.mqtt.topology.pubsub import PubSub
from broker.mqtt.topology.subscription import Subscription, encode_identifier, one_for_each_client
from protocols.mqtt.topic_filters import matches


class Client(str):
    """Who gets what is published, by a name; `denied` are topics it may not read."""

    denied: frozenset[str] = frozenset()

    def may_read(self, topic):
        return topic not in self.denied


named = cache(Client)


def subscription(client, topic_filter, share="", qos=1):
    subscriber: Any = client if isinstance(client, Client | Member) else named(client)
    return Subscription(subscriber, topic_filter, qos, share=share)


class Member:
    """A subscriber that remembers what it was given."""

    def __init__(self):
        self.taken = []
        self.has_room = True

    def may_read(self, topic):
        return True

    def forward(self, run, subscription):
        self.taken.append(run)


def run_of(label):
    return SimpleNamespace(label=label, shape=SimpleNamespace(topic="t"))


def group_of(strategy, count=3):
    pubsub = PubSub(strategy)
    members = [Member() for _ in range(count)]
    for member in members:
        pubsub.subscribe(subscription(member, "t", share="g"))
    (group,) = pubsub.route("t").groups
    return pubsub, group, members


levels = st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=4)
filter_levels = st.lists(st.sampled_from(["a", "b", "", "+", "$x"]), min_size=1, max_size=4)


@given(st.lists(st.tuples(filter_levels, st.booleans()), max_size=8), levels)
def test_route_is_what_each_filter_says_alone(filters, topic_levels):
    topic = "/".join(topic_levels)
    texts = ["/".join([*f, "#"]) if rest else "/".join(f) for f, rest in filters]
    pubsub = PubSub()
    for number, text in enumerate(texts):
        pubsub.subscribe(subscription(str(number), text))
    assert {str(s.subscriber) for s in pubsub.route(topic).subscriptions} == {
        str(number) for number, text in enumerate(texts) if matches(text, topic)
    }


def test_the_same_client_and_filter_is_one_subscription():
    pubsub = PubSub()
    pubsub.subscribe(subscription("c", "a/#", qos=0))
    newer = subscription("c", "a/#", qos=2)
    pubsub.subscribe(newer)
    assert pubsub.route("a/b").subscriptions == (newer,)


def test_unsubscribing_leaves_no_branch_behind():
    pubsub = PubSub()
    one, other = subscription("c", "a/+/c"), subscription("d", "a")
    pubsub.subscribe(one)
    pubsub.subscribe(other)
    assert pubsub.route("a/b/c").subscriptions == (one,)
    pubsub.unsubscribe(one)
    assert pubsub.route("a/b/c") == ((), (), {})
    assert pubsub.route("a").subscriptions == (other,)
    assert not pubsub._root.children["a"].children


def test_a_topic_that_a_client_may_not_read_does_not_reach_it():
    pubsub = PubSub()
    client = Client("c")
    client.denied = {"a/secret"}  # type: ignore[assignment]
    one = subscription(client, "a/+")
    pubsub.subscribe(one)
    assert pubsub.route("a/b").subscriptions == (one,)
    assert not pubsub.route("a/secret")


def test_members_of_a_share_group_take_turns():
    _, group, members = group_of("balanced")
    for number in range(9):
        group.publish(run_of(number))
    assert [len(member.taken) for member in members] == [3, 3, 3]


def test_sticky_group_stays_with_a_member_as_long_as_it_has_room():
    pubsub, group, members = group_of("sticky")
    for number in range(5):
        group.publish(run_of(number))
    (chosen,) = [member for member in members if member.taken]
    assert len(chosen.taken) == 5
    chosen.has_room = False
    group.publish(run_of("x"))
    chosen.has_room = True
    group.publish(run_of("y"))
    (other,) = [member for member in members if member.taken and member is not chosen]
    assert [run.label for run in other.taken] == ["x", "y"]


def test_random_group_gives_everybody_some():
    _, group, members = group_of("random")
    for number in range(300):
        group.publish(run_of(number))
    assert all(member.taken for member in members)


@pytest.mark.parametrize("strategy", ["balanced", "sticky", "random"])
def test_member_without_room_is_passed_over_while_another_has_some(strategy):
    _, group, members = group_of(strategy)
    members[0].has_room = members[1].has_room = False
    for number in range(6):
        group.publish(run_of(number))
    assert len(members[2].taken) == 6
    members[2].has_room = False
    group.publish(run_of("x"))
    assert sum(len(member.taken) for member in members) == 7


def test_several_subscriptions_of_a_client_make_one_copy():
    """[MQTT-3.3.4-2] to [MQTT-3.3.4-4]"""
    client: Any = Client("c")
    first = Subscription(client, "a/#", 1, identifiers=encode_identifier(1))
    second = Subscription(client, "a/b", 2, retain_as_published=True, identifiers=encode_identifier(200))
    other = subscription("d", "a/b", qos=0)
    merged, alone = one_for_each_client([first, other, second])
    assert (merged.subscriber, merged.qos, merged.retain_as_published) == (client, 2, True)
    assert merged.identifiers == b"\x0b\x01\x0b\xc8\x01"
    assert alone is other


@pytest.mark.parametrize("topic", ["$SYS/a", "$x"])
def test_a_leading_wildcard_does_not_match_system_topics(topic):
    pubsub = PubSub()
    pubsub.subscribe(subscription("c", "#"))
    pubsub.subscribe(subscription("d", "+/a"))
    assert pubsub.route(topic) == ((), (), {})


def test_share_group_ends_with_its_last_member():
    pubsub, group, members = group_of("balanced", 2)
    one, other = group.members
    pubsub.unsubscribe(one)
    assert [s.subscriber for s in pubsub.route("t").groups[0].members] == [members[1]]
    pubsub.unsubscribe(other)
    assert pubsub.route("t") == ((), (), {})
    assert not pubsub._root.children
    group.publish(run_of("lost"))
    assert members[1].taken == []


def test_a_client_is_a_member_of_a_group_once():
    pubsub, group, members = group_of("balanced", 1)
    newer = subscription(members[0], "t", share="g", qos=2)
    pubsub.subscribe(newer)
    assert group.members == [newer]


def test_match_costs_the_same_with_100_000_wildcard_subscriptions(monkeypatch):
    """Only branches that the topic may take are looked at."""
    looked = [0]
    collect = pubsub_module._collect

    def count(*arguments):
        looked[0] += 1
        collect(*arguments)

    monkeypatch.setattr(pubsub_module, "_collect", count)
    costs = []
    gc.disable()  # it would look at all those branches over and over
    for size in (50, 50_000):
        pubsub = PubSub()
        client = Client("c")
        for number in range(size):
            pubsub.subscribe(subscription(client, f"site/{number}/+/temperature/#"))
            pubsub.subscribe(subscription(client, f"+/{number}/device"))
        looked[0] = 0
        assert len(pubsub.route("site/7/a/temperature/x").subscriptions) == 1
        costs.append(looked[0])
    gc.enable()
    assert costs[0] == costs[1] < 20
