import pytest

from broker.links.amqp_uri import hidden, read_uri, without_login
from queue_manager.errors import InvalidArgument


def test_a_uri_is_read_with_what_it_leaves_out():
    uri = read_uri("amqps://me:p%40ss@h.example:99/a%2Fb?heartbeat=5&verify=verify_none", "/")
    assert (uri.host, uri.port, uri.user, uri.password, uri.vhost) == ("h.example", 99, "me", "p@ss", "a/b")
    assert (uri.heartbeat_s, uri.tls) == (5, {"verify": "verify_none"})
    assert "p@ss" not in repr(uri)
    plain = read_uri("amqp://h", "v")
    assert (plain.port, plain.user, plain.password, plain.vhost) == (5672, "guest", "guest", "v")
    assert plain.context() is None


@pytest.mark.parametrize(("text", "vhost"), [("amqp://", "mine"), ("amqp:///other", "other")])
def test_without_a_host_it_is_this_broker(text, vhost):
    uri = read_uri(text, "mine")
    assert uri.is_here
    assert uri.vhost == vhost


@pytest.mark.parametrize(
    "text",
    [
        "http://h",
        "x",
        7,
        "amqp://u:secret@h:port",
        "amqp://u:secret@h?channel_max=3",
        "amqp://u:secret@h?cacertfile=/x",
        "amqps://u:secret@h?verify=maybe",
        "amqp://u:***@h",
        "amqps://",
        "amqp://u:secret@/",
    ],
)
def test_what_is_no_uri_of_a_broker_is_refused_without_its_password(text):
    with pytest.raises(InvalidArgument) as refused:
        read_uri(text, "/")
    assert "secret" not in refused.value.reason


@pytest.mark.parametrize(
    ("text", "shown", "bare"),
    [
        ("amqp://u:p@h/v?a=b", "amqp://u:***@h/v?a=b", "amqp://h/v"),
        ("amqp://u:p@x@h", "amqp://u:***@h", "amqp://h"),
        ("amqp://u@h", "amqp://u@h", "amqp://h"),
        ("amqp://h", "amqp://h", "amqp://h"),
    ],
)
def test_passwords_are_not_shown(text, shown, bare):
    assert hidden(text) == shown
    assert without_login(text) == bare
