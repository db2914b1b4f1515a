"""broker.access.loopback: which addresses are this machine's own."""

import pytest

from broker.access.credentials import peer_of
from broker.access.loopback import is_loopback_host
from protocols.proxy import UNKNOWN_PEER


@pytest.mark.parametrize("peer", ["127.0.0.1:5", "127.9.9.9:1", "::1:5", "::ffff:127.0.0.1:7"])
def test_loopback(peer):
    assert peer_of(peer).is_local


@pytest.mark.parametrize(
    ("host", "own"),
    [("localhost", True), ("127.0.0.1", True), ("0.0.0.0", False), ("::", False), ("a.b", False)],
)
def test_hosts_to_listen_on(host, own):
    assert is_loopback_host(host) == own


@pytest.mark.parametrize("peer", ["10.0.0.1:5", "192.168.1.1:1", "::2:5", "::ffff:10.0.0.1:7", "name:1"])
def test_not_loopback(peer):
    assert not peer_of(peer).is_local


def test_a_unix_socket_is_this_machine_and_whom_a_proxy_does_not_name_is_not():
    assert peer_of("unix").is_local
    assert peer_of("[::1]:5").is_local
    assert not peer_of(UNKNOWN_PEER).is_local
