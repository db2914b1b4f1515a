"""Names of exchanges and queues.

The specification's character set (letters, digits, `-_.:`) is wider everywhere in practice, and `$queue/...`
addresses need more; so names are any UTF-8 without control characters, as long as a short string holds them.
"""

from typing import Final

from config import limits

DEFAULT_EXCHANGE: Final = ""
RESERVED_PREFIX: Final = "amq."

# exchanges that exist in every virtual host, with their type
PREDECLARED_EXCHANGES: Final[dict[str, str]] = {
    DEFAULT_EXCHANGE: "direct",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}
REPLY_TO: Final = "amq.rabbitmq.reply-to"


def is_valid_name(name: str) -> bool:
    """Whether an exchange or queue may be called so (the empty name is the caller's to judge)."""
    return len(name.encode()) <= limits.QUEUE_NAME_BYTES_MAX and (
        name.isprintable() or not any(c < " " or c == "\x7f" for c in name)
    )


def is_reserved_name(name: str) -> bool:
    """Names starting with `amq.` are the broker's: declaring a new one is refused with 403."""
    return name.startswith(RESERVED_PREFIX)


def is_reply_key(key: str) -> bool:
    """Whether a routing key is that of a requester who takes replies directly, or made to look so."""
    return key.startswith(REPLY_TO) and (key == REPLY_TO or key[len(REPLY_TO)] == ".")
