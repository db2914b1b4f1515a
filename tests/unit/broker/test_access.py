"""broker.access: guest and anonymous clients come from this machine only."""

import pytest

from broker.access import check_amqp, check_mqtt, is_loopback, is_loopback_host


@pytest.mark.parametrize("peer", ["127.0.0.1:5", "127.9.9.9:1", "::1:5", "::ffff:127.0.0.1:7"])
def test_loopback(peer):
    assert is_loopback(peer)


@pytest.mark.parametrize(
    ("host", "own"),
    [("localhost", True), ("127.0.0.1", True), ("0.0.0.0", False), ("::", False), ("a.b", False)],
)
def test_hosts_to_listen_on(host, own):
    assert is_loopback_host(host) == own


@pytest.mark.parametrize("peer", ["10.0.0.1:5", "192.168.1.1:1", "::2:5", "::ffff:10.0.0.1:7", "", "name:1"])
def test_not_loopback(peer):
    assert not is_loopback(peer)


def test_amqp_wants_guest_from_loopback():
    assert check_amqp("127.0.0.1:1", "guest", "guest") == ""
    assert "password" in check_amqp("127.0.0.1:1", "guest", "wrong")
    assert "password" in check_amqp("127.0.0.1:1", "root", "guest")
    assert "machine" in check_amqp("10.0.0.1:1", "guest", "guest")


def test_mqtt_takes_anonymous_clients_from_loopback():
    assert check_mqtt("127.0.0.1:1", None, None) == ""
    assert check_mqtt("127.0.0.1:1", "guest", b"guest") == ""
    assert "password" in check_mqtt("127.0.0.1:1", "guest", b"\xff")
    assert "machine" in check_mqtt("10.0.0.1:1", None, None)
