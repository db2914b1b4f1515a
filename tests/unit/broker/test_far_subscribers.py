"""broker.mqtt.topology: what a worker knows of subscribers at others, and tells them of its own."""

from collections import Counter
from typing import Any

from broker.engine.elsewhere import FilterFact
from broker.mqtt.topology.pubsub import PubSub
from broker.mqtt.topology.subscription import HERE, ShareGroup, Subscription


class Client:
    """Somebody who may read everything."""

    def may_read(self, topic: str) -> bool:
        return True


class Told:
    """Remembers what the other workers would have been told."""

    number = 0

    def __init__(self) -> None:
        self.facts: list[FilterFact] = []

    def tell(self, vhost: str, fact: FilterFact) -> None:
        self.facts.append(fact)


def reaching() -> tuple[PubSub, Told]:
    pubsub, told = PubSub(), Told()
    elsewhere: Any = told
    pubsub.reach(elsewhere, "/")
    return pubsub, told


def subscription(topic_filter: str, share: str = "", *, is_kept: bool = False) -> Subscription:
    client: Any = Client()
    return Subscription(client, topic_filter, 1, share=share, is_kept=is_kept)


def test_others_are_told_of_the_first_and_the_last_subscriber_of_a_filter() -> None:
    pubsub, told = reaching()
    first, second = subscription("a/+"), subscription("a/+", is_kept=True)
    pubsub.subscribe(first)
    pubsub.subscribe(second)
    pubsub.unsubscribe(second)
    pubsub.unsubscribe(first)
    assert told.facts == [
        FilterFact("a/+", "", 1, False),
        FilterFact("a/+", "", 1, True),
        FilterFact("a/+", "", 1, False),
        FilterFact("a/+", "", 0, False),
    ]


def test_others_are_told_how_many_members_a_group_has() -> None:
    pubsub, told = reaching()
    members = [subscription("a", "g") for _ in range(2)]
    for member in members:
        pubsub.subscribe(member)
    for member in members:
        pubsub.unsubscribe(member)
    assert [fact.members for fact in told.facts] == [1, 2, 1, 0]


def test_route_has_each_other_worker_once_and_whether_it_keeps_messages() -> None:
    pubsub, _ = reaching()
    pubsub.know(1, [FilterFact("a/#", "", 1, False), FilterFact("a/b", "", 1, True)])
    pubsub.know(2, [FilterFact("+/b", "", 1, False)])
    version = pubsub.version
    assert pubsub.route("a/b").far == {1: True, 2: False}
    assert pubsub.route("a/c").far == {1: False}
    pubsub.know(1, [FilterFact("a/b", "", 0, False), FilterFact("a/#", "", 0, True)])
    assert not version.is_current
    assert pubsub.route("a/b").far == {1: True, 2: False}
    pubsub.know(1, [FilterFact("a/#", "", 0, False)])
    pubsub.know(2, [FilterFact("+/b", "", 0, False)])
    assert pubsub.route("a/b").far == {}


def test_leading_wildcard_of_another_worker_does_not_match_system_topics() -> None:
    pubsub, _ = reaching()
    pubsub.know(1, [FilterFact("#", "", 1, False)])
    assert pubsub.route("$SYS/x").far == {}


def test_group_gives_turns_to_workers_by_their_members() -> None:
    pubsub, _ = reaching()
    pubsub.subscribe(subscription("a", "g"))
    pubsub.know(1, [FilterFact("a", "g", 2, False)])
    pubsub.know(2, [FilterFact("a", "g", 1, True)])
    (group,) = pubsub.route("a").groups
    assert Counter(group.pick_worker() for _ in range(40)) == {HERE: 10, 1: 20, 2: 10}


def test_group_without_connected_members_is_with_a_worker_that_keeps_messages() -> None:
    group = ShareGroup("balanced")
    group.know(1, 0, is_kept=True)
    group.know(2, 1, is_kept=False)
    assert group.pick_worker() == 2
    group.know(2, 0, is_kept=False)
    assert group.pick_worker() == 1
    log: Any = object()
    group.log = log
    assert group.pick_worker() == HERE


def test_group_that_others_alone_have_is_forgotten_with_their_last_member() -> None:
    pubsub, _ = reaching()
    pubsub.know(1, [FilterFact("a", "g", 1, False)])
    assert pubsub.route("a").groups
    pubsub.know(1, [FilterFact("a", "g", 0, False)])
    assert not pubsub.route("a").groups
