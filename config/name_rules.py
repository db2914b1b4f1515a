"""The rules of queue names, topic filters, bind addresses and storage URLs."""

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from config import limits

DEFAULT_VHOST: Final = "/"
OBJECT_STORE_SCHEMES: Final = ("s3", "gs", "az")
_RESERVED_ROOTS: Final = {
    "$SYS": "the broker speaks there",
    "$share": "to share a subscription, subscribe to $share/<group>/<filter>",
    "$stream": "a stream is a queue, at $queue/<name>",
    "$streams": "a stream is a queue, at $queue/<name>",
    "$dlq": "a dead-letter queue is a queue, at $queue/<name>",
    "$delayed": "to delay a message, give it the property or header x-delay",
    "$exclusive": "exclusive subscriptions are not known; AMQP has exclusive consumers",
    "$CONTROL": "the broker is administered over HTTP",
}
"""What other brokers give a meaning that it has not here, or the broker alone may say."""
_INSTANCE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_APART: Final = "\0\x1d\x1e\x1f"  # between the parts of keys on the store
_CODE: Final = re.compile("%(2[345BFbf])")
_READ_AS_CODE: Final = re.compile("%(?=2[345BFbf])")
_TO_CODE: Final = str.maketrans({"/": "%2F", "#": "%23", "+": "%2B"})
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")


def check_vhost_name(name: str) -> str:
    """Return `name` if a virtual host may be called so; raise ValueError saying why not."""
    size_bytes = _utf8_bytes(name)
    if not 1 <= size_bytes <= limits.VHOST_NAME_BYTES_MAX:
        raise ValueError(f"the name of a virtual host has 1 to {limits.VHOST_NAME_BYTES_MAX} bytes of UTF-8")
    if name != "/" and (not name.isprintable() or any(character in name for character in "/+#$")):
        raise ValueError("the name of a virtual host must not contain /, +, #, $ or control characters")
    return name


def check_queue_name(name: str) -> str:
    """Return `name` if a queue may be called so; raise ValueError saying why not."""
    size_bytes = _utf8_bytes(name)
    if size_bytes == 0:
        raise ValueError("a queue name must not be empty")
    if size_bytes > limits.QUEUE_NAME_BYTES_MAX:
        raise ValueError(
            f"a queue name has at most {limits.QUEUE_NAME_BYTES_MAX} bytes of UTF-8, this has {size_bytes}"
        )
    if not name.isprintable() and any(character in name for character in _APART):
        raise ValueError("a queue name must not contain the control characters 0x00, 0x1D, 0x1E and 0x1F")
    if name.startswith("$queue") and name[6:7] in ("", "/"):
        raise ValueError("a queue name must not be an address: $queue, or below $queue/")
    return name


def why_reserved(topic: str) -> str:
    """Return why a topic, or the name of a queue, is not for clients, "" if it is."""
    if not topic.startswith("$"):
        return ""
    root = topic.partition("/")[0]
    why = _RESERVED_ROOTS.get(root)
    return "" if why is None else f"{topic!r}: what begins with {root} is reserved; {why}"


def queue_level(name: str) -> str:
    """Return the name of a queue as a level of its `$queue/<level>` addresses, which `queue_of_level` reads.

    What a level of a topic cannot hold, and a `$` at the beginning, which stands for a verb, are written as
    `%2F`, `%23`, `%2B` and `%24`; a `%` that would be read as such a one is `%25`.
    """
    if "%" in name:
        name = _READ_AS_CODE.sub("%25", name)
    level = name.translate(_TO_CODE)
    return f"%24{level[1:]}" if level.startswith("$") else level


def queue_of_level(level: str) -> str:
    """Return the name of the queue that a level of an address stands for."""
    return _CODE.sub(lambda code: chr(int(code[1], 16)), level) if "%" in level else level


def check_topic_filter(topic: str) -> str:
    """Return `topic` if it is an MQTT topic filter (MQTT 5.0 section 4.7); raise ValueError if not."""
    size_bytes = _utf8_bytes(topic)
    if size_bytes == 0:
        raise ValueError("a topic must not be empty")
    if size_bytes > limits.MQTT_TOPIC_BYTES_MAX:
        raise ValueError(f"a topic has at most {limits.MQTT_TOPIC_BYTES_MAX} bytes of UTF-8")
    if "\0" in topic:
        raise ValueError("a topic must not contain NUL")
    levels = topic.split("/")
    if len(levels) > limits.MQTT_TOPIC_LEVELS_MAX:
        raise ValueError(f"a topic has at most {limits.MQTT_TOPIC_LEVELS_MAX} levels, this has {len(levels)}")
    if levels[0] == "$share":
        raise ValueError(f"{topic!r} is a shared subscription; a queue is bound to plain topic filters")
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != len(levels) - 1):
            raise ValueError(f"in {topic!r}, # must be the whole last level")
        if "+" in level and level != "+":
            raise ValueError(f"in {topic!r}, + must be a whole level")
    return topic


def check_group_name(name: str) -> str:
    """Return `name` if a consumer group may be called so; raise ValueError otherwise."""
    if not 1 <= _utf8_bytes(name) <= limits.GROUP_NAME_BYTES_MAX:
        raise ValueError(f"a group name has 1 to {limits.GROUP_NAME_BYTES_MAX} bytes of UTF-8")
    if any(character in name for character in "\0\x1f@"):
        raise ValueError(f"group name {name!r} contains NUL, U+001F or '@'")
    return name


def check_bind(bind: str) -> str:
    """Return `bind` if it is an IP address or a host name; raise ValueError otherwise."""
    try:
        ipaddress.ip_address(bind)
    except ValueError:
        if len(bind) > 253 or not _HOST_NAME.fullmatch(bind) or re.fullmatch(r"[0-9.]+", bind):
            raise ValueError(f"{bind[:80]!r} is neither an IP address nor a host name") from None
    return bind


def check_storage_url(url: str) -> str:
    """Return `url` if it is a path, `memory:`, or `s3|gs|az://bucket[/prefix]`; else raise ValueError."""
    if not url.strip() or "\0" in url:
        raise ValueError("must be a path, memory:, or an object store such as s3://bucket/prefix")
    if url.startswith("memory:") and url != "memory:":
        raise ValueError("memory: takes nothing after the colon")
    scheme, separator, rest = url.partition("://")
    if separator:
        if scheme not in OBJECT_STORE_SCHEMES:
            known = ", ".join(f"{known}://" for known in OBJECT_STORE_SCHEMES)
            raise ValueError(f"{scheme}:// is not a known storage: use a path, memory:, {known}")
        bucket = rest.partition("/")[0]
        if not bucket:
            raise ValueError(f"{scheme}:// names no bucket")
        if "@" in bucket:  # the address is logged and shown
            raise ValueError("must not have credentials in it; they come from the environment")
    return url


def check_log_url(url: str) -> str:
    """Return `url` if it is empty or names a bucket of an object store, as `s3://bucket`; else raise
    ValueError.
    """
    if not url:
        return url
    if "://" not in url or url.partition("://")[2].partition("/")[2].strip("/"):
        raise ValueError(
            "must name a bucket alone, as s3://bucket: the log lies there under the prefix of storage.url"
        )
    return check_storage_url(url)


def check_collector_url(url: str) -> str:
    """Return `url` if it is empty or an HTTP URL without credentials; else raise ValueError."""
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("must be a URL such as http://localhost:4318")
    if parts.username or parts.password:
        raise ValueError("must not have credentials in it; OTEL_EXPORTER_OTLP_HEADERS may have some")
    return url


def check_instance_id(text: str) -> str:
    """Return `text` if it is empty or may be part of a log's key; raise ValueError otherwise."""
    if text and not _INSTANCE_ID.fullmatch(text):
        raise ValueError("must be 1 to 64 of A-Z a-z 0-9 . _ -")
    return text


def check_key_id(text: str) -> str:
    """Return `text` if it may name a key of the storage; raise ValueError otherwise."""
    if not _INSTANCE_ID.fullmatch(text):
        raise ValueError("must be 1 to 64 of A-Z a-z 0-9 . _ -")
    return text


def check_description(text: str) -> str:
    """Return `text` if it is short enough for a description; raise ValueError otherwise."""
    if _utf8_bytes(text) > limits.QUEUE_DESCRIPTION_BYTES_MAX:
        raise ValueError(f"is longer than {limits.QUEUE_DESCRIPTION_BYTES_MAX} bytes")
    return text


def _utf8_bytes(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair, which UTF-8 cannot carry") from None
