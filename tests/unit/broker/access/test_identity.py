"""broker.access.login: identities keep what was decided, and notice when less is allowed."""

import pytest

from broker.access.credentials import VhostRefused
from broker.access.login import Login, NotPermitted
from broker.access.rights import EVERYTHING, Action, Grant, Kind
from config import limits

READ = Action.READ


def login(**grants):
    return Login("alice", grants, source="test")


def test_only_virtual_hosts_with_a_grant_are_entered():
    with pytest.raises(VhostRefused, match="access to vhost 'b' refused for user 'alice'"):
        login(a=EVERYTHING).enter("b")
    assert login(**{"*": EVERYTHING}).enter("b").vhost == "b"


def test_a_refusal_says_what_was_asked_for():
    identity = login(a=Grant()).enter("a")
    with pytest.raises(NotPermitted, match="access to queue 'q' in vhost 'a' refused for user 'alice'"):
        identity.check(READ, Kind.QUEUE, "q")
    with pytest.raises(NotPermitted, match=r"access to exchange 'amq\.default' in vhost 'a'"):
        identity.check(READ, Kind.EXCHANGE, "")


def test_an_identity_is_narrowed_by_a_login_that_refuses_what_it_was_allowed():
    identity = login(a=Grant(read="^(q|r)$")).enter("a")
    assert identity.may(READ, Kind.QUEUE, "q")
    assert not identity.may(READ, Kind.QUEUE, "s")
    assert not identity.is_narrowed_by(login(a=Grant(read="^(q|s)$")))  # r was never asked for
    assert identity.may(READ, Kind.QUEUE, "s")
    assert not identity.may(READ, Kind.QUEUE, "r")
    assert identity.is_narrowed_by(login(a=Grant(read="^r$")))
    assert identity.is_narrowed_by(login(b=EVERYTHING))


def test_what_stands_alone_is_narrowed_by_a_login_without_the_tags_it_takes():
    identity = Login("alice", {"a": EVERYTHING}, tags=frozenset({"monitoring"}), source="test").enter("a")
    assert identity.may(READ, Kind.QUEUE, "q")
    own = identity.alone(frozenset({"administrator", "monitoring"}))
    assert own.is_narrowed_by(login(a=EVERYTHING))
    assert not identity.is_narrowed_by(login(a=EVERYTHING))
    assert identity.alone(frozenset()).is_narrowed_by(login(a=Grant()))


def test_all_topics_narrowed_to_some_is_noticed():
    identity = login(a=EVERYTHING).enter("a")
    assert identity.may_all_topics(READ)
    assert identity.is_narrowed_by(login(a=Grant(".*", ".*", "^news")))


def test_an_identity_that_kept_too_many_decisions_is_narrowed_by_any_change():
    identity = login(a=EVERYTHING).enter("a")
    for number in range(limits.ACCESS_DECISIONS_KEPT_MAX + 1):
        assert identity.may(READ, Kind.QUEUE, f"q{number}")
    assert not identity.is_narrowed_by(login(a=EVERYTHING))
    assert identity.is_narrowed_by(login(a=Grant("", ".*", ".*")))
