"""broker.access.address_limits: how many connections an address may have, and make."""

from broker.access.address_limits import Addresses
from config import limits
from config.access_settings import AccessSettings


def test_without_limits_anybody_connects_as_they_like():
    addresses = Addresses(AccessSettings())
    assert {addresses.enter("10.0.0.1", 0.0) for _ in range(1000)} == {""}


def test_an_address_has_no_more_connections_than_it_may():
    addresses = Addresses(AccessSettings(connections_per_address=2))
    assert addresses.enter("10.0.0.1", 0.0) == addresses.enter("10.0.0.1", 0.0) == ""
    assert "more than 2" in addresses.enter("10.0.0.1", 0.0)
    assert addresses.enter("10.0.0.2", 0.0) == ""
    addresses.leave("10.0.0.1")
    assert addresses.enter("10.0.0.1", 0.0) == ""
    addresses.follow(AccessSettings(connections_per_address=3))
    assert addresses.enter("10.0.0.1", 0.0) == ""
    assert addresses.enter("10.0.0.1", 0.0)


def test_an_address_connects_no_quicker_than_it_may():
    addresses = Addresses(AccessSettings(connects_per_second=2))
    assert addresses.enter("10.0.0.1", 0.0) == addresses.enter("10.0.0.1", 0.0) == ""
    assert "a second" in addresses.enter("10.0.0.1", 0.1)
    assert addresses.enter("10.0.0.2", 0.1) == ""
    assert addresses.enter("10.0.0.1", 0.6) == ""
    assert addresses.enter("10.0.0.1", 0.7)
    assert [addresses.enter("10.0.0.1", 100.0) for _ in range(3)][:2] == ["", ""]


def test_the_table_of_who_connected_is_bounded(monkeypatch):
    monkeypatch.setattr(limits, "ADDRESSES_KEPT_MAX", 10)
    addresses = Addresses(AccessSettings(connects_per_second=1))
    for number in range(100):
        addresses.enter(f"10.0.0.{number}", 0.0)
        addresses.leave(f"10.0.0.{number}")
    assert len(addresses._tokens) <= 10
    assert not addresses._counts
