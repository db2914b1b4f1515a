"""Quotas of virtual hosts and users that have something in other shards, too."""

import pytest

from queue_manager.errors import LimitReached
from queue_manager.quota_accounts import BYTES, CONNECTIONS, EXCHANGES, MESSAGES_IN, Quotas

ANNA = True, "anna"


def test_what_is_elsewhere_counts_for_a_quota():
    quotas = Quotas()
    quotas.bound_users({CONNECTIONS: 3}, {})
    quotas.enter("a", "/", "anna", 0.0)
    quotas.take_elsewhere({ANNA: {CONNECTIONS: 1}}, 2)
    quotas.enter("b", "/", "anna", 0.0)
    with pytest.raises(LimitReached):
        quotas.enter("c", "/", "anna", 0.0)
    quotas.take_elsewhere({}, 2)
    quotas.enter("c", "/", "anna", 0.0)


def test_what_is_elsewhere_counts_for_an_account_that_is_made_later():
    quotas = Quotas()
    quotas.bound_users({CONNECTIONS: 1}, {})
    quotas.take_elsewhere({ANNA: {CONNECTIONS: 1}}, 2)
    with pytest.raises(LimitReached):
        quotas.enter("a", "/", "anna", 0.0)


def test_what_all_shards_have_is_not_told_to_others():
    quotas = Quotas()
    quotas.bound_vhost("/", {EXCHANGES: 5, CONNECTIONS: 5})
    quotas.add(EXCHANGES, "/", None)
    quotas.enter("a", "/", "anna", 0.0)
    assert quotas.usage() == {(False, "/"): {CONNECTIONS: 1}}


def test_accounts_without_quotas_are_not_told_to_others():
    quotas = Quotas()
    quotas.enter("a", "/", "anna", 0.0)
    assert quotas.usage() == {}


def test_bytes_stored_elsewhere_count_for_a_quota():
    quotas = Quotas()
    quotas.bound_vhost("/", {BYTES: 100})
    quotas.of_vhost("/").stored_bytes = 60
    assert quotas.bytes_refusal("/", None) == ""
    quotas.take_elsewhere({(False, "/"): {BYTES: 40}}, 2)
    assert "100" in quotas.bytes_refusal("/", None)


def test_rate_leaves_to_others_what_they_took_but_for_an_equal_share():
    quotas = Quotas()
    quotas.bound_vhost("/", {MESSAGES_IN: 100})
    share = quotas.enter("a", "/", "anna", 0.0)
    share.spend(MESSAGES_IN, 30, 0.0)
    assert quotas.usage() == {(False, "/"): {CONNECTIONS: 1, MESSAGES_IN: 30}}
    assert quotas.usage() == {(False, "/"): {CONNECTIONS: 1}}
    for elsewhere, left in ((0, 100), (30, 70), (100, 50)):
        quotas.take_elsewhere({(False, "/"): {MESSAGES_IN: elsewhere}}, 2)
        assert share.per_s(MESSAGES_IN) == left
    _, reason = share.spend(MESSAGES_IN, 1000, 1.0)
    assert "more than 100 messages" in reason
