"""What a webhook posts, where to, and what it does when that fails."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from broker.links.amqp_uri import HIDDEN
from broker.links.shovel_settings import Checks, number, one_of, problems_of, refuse, text, whole
from config import limits

JSON: Final = "json"
RAW: Final = "raw"
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - of Standard Webhooks: base64 follows
_OWN_HEADERS: Final = ("host", "content-length", "transfer-encoding", "connection")


@dataclass(frozen=True, slots=True)
class Source:
    """A binding of the webhook's queue."""

    exchange: str
    routing_key: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """A webhook; without a `queue` it has one of its own. `attempts_max` 0: it is tried for ever."""

    url: str
    queue: str | None
    bindings: tuple[Source, ...]
    format: str
    batch_max: int
    concurrency: int
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    secret: bytes = field(repr=False)
    ca_file: str | None
    timeout_s: float
    attempts_max: int
    retry_max_s: float


def _url(value: object) -> str:
    if not isinstance(value, str):
        return "should be a URL"
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "should be an http:// or https:// URL"
    if parts.username is not None or parts.fragment:
        return "a login or a fragment has no place in a URL: use headers or bearer-token"
    return "" if value.isascii() and value.isprintable() and " " not in value else "is encoded by %"


def _headers(value: object) -> str:
    if not isinstance(value, dict) or len(value) > limits.WEBHOOK_HEADERS_MAX:
        return f"should be an object of at most {limits.WEBHOOK_HEADERS_MAX} texts"
    for name, each in value.items():
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            return f"{name!r} is no name of a header"
        if name.lower() in _OWN_HEADERS:
            return f"{name} is the broker's to say"
        if not isinstance(each, str) or not each.isprintable() or not each.isascii():
            return f"{name} should be a text of printable ASCII"
        if each == HIDDEN:
            return f"{name}: {HIDDEN} stands for what is not shown; give it"
    return ""


def _secret(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or not value.isascii():
        return "should be a text of printable ASCII"
    if value == HIDDEN:
        return f"{HIDDEN} stands for a secret that is not shown; give it"
    try:
        _key_of(value)
    except binascii.Error:
        return f"what follows {_SECRET_PREFIX} is base64"
    return ""


def _key_of(secret: str) -> bytes:
    if secret.startswith(_SECRET_PREFIX):
        return base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    return secret.encode()


def _bindings(value: object) -> str:
    if not isinstance(value, list) or len(value) > limits.WEBHOOK_BINDINGS_MAX:
        return f"should be a list of at most {limits.WEBHOOK_BINDINGS_MAX} bindings"
    for each in value:
        if not isinstance(each, dict) or not isinstance(each.get("exchange"), str) or not each["exchange"]:
            return 'a binding is an object, as {"exchange": "amq.rabbitmq.event", "routing-key": "queue.*"}'
        unknown = each.keys() - {"exchange", "routing-key", "arguments"}
        if unknown or not isinstance(each.get("routing-key", ""), str):
            return "a binding has exchange, routing-key (a text) and arguments"
        if not isinstance(each.get("arguments", {}), dict):
            return "arguments are an object"
    return ""


def _at_most(most: int) -> Any:
    return lambda value: whole(value) or ("" if value <= most else f"should be a number up to {most}")


_CHECKS: Final[Checks] = {
    "url": _url,
    "queue": text,
    "bindings": _bindings,
    "format": one_of(JSON, RAW),
    "batch-max": _at_most(limits.WEBHOOK_BATCH_MESSAGES_MAX),
    "concurrency": _at_most(limits.WEBHOOK_CONCURRENCY_MAX),
    "headers": _headers,
    "secret": _secret,
    "bearer-token": _secret,
    "ca-file": text,
    "timeout": _at_most(limits.WEBHOOK_TIMEOUT_MS_MAX),
    "attempts-max": number,
    "retry-max": _at_most(limits.WEBHOOK_RETRY_S_MAX),
}
SECRETS: Final = ("secret", "bearer-token")


def read_webhook(value: Mapping[str, Any]) -> WebhookSettings:
    """Read a webhook; raises InvalidArgument."""
    problems = problems_of(value, _CHECKS)
    if "url" not in value:
        problems.append('Key "url" not found')
    if value.get("format") == RAW and value.get("batch-max", 1) != 1:
        problems.append("raw posts one message at a time: batch-max is for json")
    if value.get("queue") is None and not value.get("bindings"):
        problems.append("Must specify 'queue' or 'bindings': whence messages come")
    refuse(problems)
    headers = dict(value.get("headers", {}))
    if "bearer-token" in value:
        headers["Authorization"] = f"Bearer {value['bearer-token']}"
    return WebhookSettings(
        url=value["url"],
        queue=value.get("queue"),
        bindings=tuple(
            [
                Source(each["exchange"], each.get("routing-key", ""), each.get("arguments", {}))
                for each in value.get("bindings", [])
            ]
        ),
        format=value.get("format", JSON),
        batch_max=value.get("batch-max", 1),
        concurrency=value.get("concurrency", 1),
        headers=tuple(headers.items()),
        secret=_key_of(value.get("secret", "")),
        ca_file=value.get("ca-file"),
        timeout_s=value.get("timeout", limits.WEBHOOK_TIMEOUT_MS) / 1000,
        attempts_max=int(value.get("attempts-max", 0)),
        retry_max_s=value.get("retry-max", limits.LINK_RETRY_S_MAX),
    )
