"""broker.mqtt.pubsub: who gets a topic, share groups in turn, retained messages."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.mqtt.pubsub import PubSub, Retained, Subscription
from config import limits
from protocols.mqtt.constants import PUBLISH
from protocols.mqtt.properties import Properties, decode_properties, encode_properties
from protocols.mqtt.topics import matches


class Client(str):
    """Who gets what is published, by a name; `denied` are topics it may not read."""

    denied = frozenset()

    def may_read(self, topic):
        return topic not in self.denied


named = cache(Client)


def subscription(client, topic_filter, share="", qos=1):
    return Subscription(
        client if isinstance(client, Client) else named(client),
        topic_filter,
        qos,
        no_local=False,
        retain_as_published=False,
        identifier=None,
        share=share,
    )


def retained(topic, payload=b"x"):
    return Retained(topic, topic.encode(), 1, b"", payload, 0)


levels = st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=4)
filter_levels = st.lists(st.sampled_from(["a", "b", "", "+", "$x"]), min_size=1, max_size=4)


@given(st.lists(st.tuples(filter_levels, st.booleans()), max_size=8), levels)
def test_route_is_what_each_filter_says_alone(filters, topic_levels):
    topic = "/".join(topic_levels)
    texts = ["/".join([*f, "#"]) if rest else "/".join(f) for f, rest in filters]
    pubsub = PubSub()
    for number, text in enumerate(texts):
        pubsub.subscribe(subscription(str(number), text))
    assert {s.subscriber for s in pubsub.route(topic)} == {
        str(number) for number, text in enumerate(texts) if matches(text, topic)
    }


def test_the_same_client_and_filter_is_one_subscription():
    pubsub = PubSub()
    pubsub.subscribe(subscription("c", "a/#", qos=0))
    newer = subscription("c", "a/#", qos=2)
    pubsub.subscribe(newer)
    assert pubsub.route("a/b") == (newer,)


def test_unsubscribing_leaves_no_branch_behind():
    pubsub = PubSub()
    one, other = subscription("c", "a/+/c"), subscription("d", "a")
    pubsub.subscribe(one)
    pubsub.subscribe(other)
    assert pubsub.route("a/b/c") == (one,)
    pubsub.unsubscribe(one)
    assert pubsub.route("a/b/c") == ()
    assert pubsub.route("a") == (other,)
    assert not pubsub._root.children["a"].children


def test_a_topic_that_a_client_may_not_read_does_not_reach_it():
    pubsub = PubSub()
    client = Client("c")
    client.denied = {"a/secret"}
    one = subscription(client, "a/+")
    pubsub.subscribe(one)
    assert pubsub.route("a/b") == (one,)
    assert pubsub.route("a/secret") == ()


def test_members_of_a_share_group_take_turns():
    pubsub = PubSub()
    for client in "xy":
        pubsub.subscribe(subscription(client, "t", share="g"))
    pubsub.subscribe(subscription("alone", "t"))
    turns = [[s.subscriber for s in pubsub.pick(pubsub.route("t"))] for _ in range(4)]
    assert [t[0] for t in turns] == ["alone"] * 4
    assert sorted(t[1] for t in turns) == ["x", "x", "y", "y"]
    assert turns[0][1] != turns[1][1]


def test_retained_is_the_last_and_cleared_by_an_empty_payload():
    pubsub = PubSub()
    assert pubsub.retain(retained("a/b", b"1"))
    assert pubsub.retain(retained("a/b", b"22"))
    assert [m.payload for m in pubsub.retained_for("a/#")] == [b"22"]
    assert [m.payload for m in pubsub.retained_for("a/b")] == [b"22"]
    assert pubsub.retain(retained("a/b", b""))
    assert pubsub.retained_for("#") == []
    assert pubsub._retained_bytes == 0


def test_retained_messages_are_bounded(monkeypatch):
    monkeypatch.setattr(limits, "RETAINED_MESSAGES_MAX", 2)
    monkeypatch.setattr(limits, "RETAINED_BYTES_MAX", 10)
    pubsub = PubSub()
    assert pubsub.retain(retained("a", b"12345"))
    assert not pubsub.retain(retained("b", b"123456"))
    assert pubsub.retain(retained("b", b"1"))
    assert not pubsub.retain(retained("c", b"1"))
    assert pubsub.retain(retained("a", b"2"))


@pytest.mark.parametrize("topic", ["$SYS/a", "$x"])
def test_a_leading_wildcard_does_not_match_system_topics(topic):
    pubsub = PubSub()
    pubsub.subscribe(subscription("c", "#"))
    pubsub.subscribe(subscription("d", "+/a"))
    assert pubsub.route(topic) == ()


def test_a_retained_message_expires_and_says_what_is_left():
    block = encode_properties(Properties(message_expiry_interval_s=10, content_type="x"), PUBLISH)
    message = Retained("t", b"t", 1, block, b"p", 1_000)
    assert not message.has_expired(10_999)
    assert message.has_expired(11_000)
    left = decode_properties(message.properties_at(4_500), PUBLISH)
    assert (left.message_expiry_interval_s, left.content_type) == (7, "x")
    assert not retained("u").has_expired(10**15)


def test_whose_turn_it_was_is_forgotten_with_the_last_of_a_share_group():
    pubsub = PubSub()
    members = [subscription(number, "a", share="s") for number in range(2)]
    for member in members:
        pubsub.subscribe(member)
    pubsub.pick(pubsub.route("a"))
    pubsub.unsubscribe(members[0])
    assert pubsub._turns
    pubsub.unsubscribe(members[1])
    assert not pubsub._turns


def test_topics_count_towards_what_retained_messages_may_hold(monkeypatch):
    monkeypatch.setattr(limits, "RETAINED_BYTES_MAX", 1_000)
    pubsub = PubSub()
    kept = sum(pubsub.retain(retained(f"{number:0100}", b"x")) for number in range(20))
    assert 0 < kept < 10
    for topic in list(pubsub.retained):
        assert pubsub.retain(retained(topic, b""))
    assert pubsub._retained_bytes == 0
