"""AMQP URIs of links, with the query parameters that RabbitMQ's have."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from config import limits
from queue_manager.errors import InvalidArgument

HIDDEN: Final = "***"
_PORTS: Final = {"amqp": 5672, "amqps": 5671}
_VERIFY: Final = ("verify_peer", "verify_none")
_TLS_KEYS: Final = ("cacertfile", "certfile", "keyfile", "verify", "server_name_indication")


@dataclass(frozen=True)
class AmqpUri:
    """Where a broker is; without a host it is this one, and who is told needs no login."""

    scheme: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str
    tls: dict[str, str] = field(default_factory=dict)
    heartbeat_s: int = limits.LINK_HEARTBEAT_S
    timeout_s: float = limits.LINK_CONNECT_TIMEOUT_S

    @property
    def is_here(self) -> bool:
        """Whether it is this broker."""
        return not self.host

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS is set up with; None: plainly. Raises OSError for files that cannot be used."""
        if self.scheme != "amqps":
            return None
        context = ssl.create_default_context(cafile=self.tls.get("cacertfile"))
        if self.tls.get("verify") == "verify_none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if "certfile" in self.tls:
            context.load_cert_chain(self.tls["certfile"], self.tls.get("keyfile"))
        return context


def read_uri(text: object, vhost: str) -> AmqpUri:
    """Read a URI; `vhost` is meant where it names none. Raises InvalidArgument, without its password."""
    if not isinstance(text, str):
        raise InvalidArgument("a URI is a text, or a list of texts")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InvalidArgument(f"{hidden(text)!r} not a valid URI: {error}") from None
    if parts.scheme not in _PORTS:
        raise InvalidArgument(f"{hidden(text)!r} not a valid URI: it begins with amqp:// or amqps://")
    password = unquote(parts.password or "")
    if password == HIDDEN:
        raise InvalidArgument(f"{hidden(text)!r}: {HIDDEN} stands for a password that is not shown; give it")
    if not parts.hostname and (parts.scheme == "amqps" or parts.username or port):
        raise InvalidArgument(f"{hidden(text)!r}: without a host it is this broker, without login and TLS")
    uri = AmqpUri(
        scheme=parts.scheme,
        host=parts.hostname or "",
        port=port or _PORTS[parts.scheme],
        user=unquote(parts.username or "guest"),
        password=password if parts.password is not None else "guest",
        vhost=unquote(parts.path[1:]) if parts.path else vhost,
    )
    return replace(uri, **_asked(text, parts.query, is_tls=parts.scheme == "amqps"))


def _asked(text: str, query: str, *, is_tls: bool) -> dict[str, Any]:
    """Return what the query of a URI says; raises InvalidArgument."""
    told: dict[str, Any] = {"tls": {}}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in _TLS_KEYS and is_tls and value:
            told["tls"][key] = value
        elif key == "heartbeat" and value.isdigit():
            told["heartbeat_s"] = int(value)
        elif key == "connection_timeout" and value.isdigit() and int(value):
            told["timeout_s"] = min(int(value) / 1000, limits.LINK_CONNECT_TIMEOUT_S)
        elif key == "auth_mechanism" and value.lower() == "plain":
            continue
        else:
            raise InvalidArgument(f"{hidden(text)!r}: {key}={value} is not known here")
    if told["tls"].get("verify", _VERIFY[0]) not in _VERIFY:
        raise InvalidArgument(f"{hidden(text)!r}: verify is one of {', '.join(_VERIFY)}")
    return told


def hidden(text: str) -> str:
    """Return a URI without its password: what may be shown."""
    before, at, rest = text.partition("://")
    login, is_told, where = rest.rpartition("@")
    if not is_told:
        return text
    user, colon, _ = login.partition(":")
    return f"{before}{at}{user}{colon}{HIDDEN if colon else ''}@{where}"


def without_login(text: str) -> str:
    """Return a URI without user, password and query: what messages and listings tell."""
    before, at, rest = text.partition("://")
    return f"{before}{at}{rest.rpartition('@')[2].partition('?')[0]}"
