"""protocols.websocket.websocket_server: handshakes that are not as they should be."""

import pytest

from protocols.websocket.websocket_server import WebSocketServer

PAGES = "https://pages.example.org"


def handshake(target="/mqtt", host="broker.example:8083", origin=None):
    lines = [
        f"GET {target} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: mqtt",
        *([f"Origin: {origin}"] if origin else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def asked(origins=(PAGES,), **parts):
    server = WebSocketServer("/mqtt", ["mqtt"], origins)
    server.receive(handshake(**parts))
    return server


@pytest.mark.parametrize(
    "parts",
    [{"origin": "http://["}, {"origin": "http://a", "host": "[x"}, {"target": "//["}, {"origin": "http://"}],
    ids=str,
)
def test_names_that_cannot_be_read_are_refused(parts):
    server = asked(**parts)
    assert server.closed
    assert not server.is_open
    assert server.reason


def test_a_page_that_only_the_names_vouch_for_is_told_by_the_host_it_asked_for():
    assert asked(origin="http://broker.example").asked_for == "broker.example"
    for vouched in (asked(), asked(origin=PAGES), asked(("*",), origin="http://broker.example")):
        assert vouched.is_open
        assert vouched.asked_for == ""
