"""Names of exchanges and queues.

The specification's character set (letters, digits, `-_.:`) is wider everywhere in practice, and `$queue/...`
addresses need more; so names are whatever UTF-8 a short string holds.
"""

from typing import Any, Final

from pamqp import commands

DEFAULT_EXCHANGE: Final = ""
RESERVED_PREFIX: Final = "amq."

REPLY_TO: Final = "amq.rabbitmq.reply-to"


_DECLARED: Final[dict[type, tuple[str, ...]]] = {
    commands.Exchange.Declare: ("exchange",),
    commands.Exchange.Delete: ("exchange",),
    commands.Exchange.Bind: ("source", "destination"),
    commands.Exchange.Unbind: ("source", "destination"),
    commands.Queue.Declare: ("queue",),
    commands.Queue.Delete: ("queue",),
    commands.Queue.Bind: ("queue", "exchange"),
    commands.Queue.Unbind: ("queue", "exchange"),
}
_LINE_ENDS: Final = str.maketrans("", "", "\r\n")


def strip_line_ends(method: Any) -> None:
    """Take line ends out of the names that a method declares, deletes or binds, as RabbitMQ does.

    Elsewhere a name with one is a name that nothing has.
    """
    for argument in _DECLARED.get(type(method), ()):
        name: str = getattr(method, argument)
        if not name.isprintable():
            setattr(method, argument, name.translate(_LINE_ENDS))


def is_reserved_name(name: str) -> bool:
    """Return whether a name starts with `amq.`: those are the broker's, declaring a new one is refused with
    403.
    """
    return name.startswith(RESERVED_PREFIX)


def is_reply_key(key: str) -> bool:
    """Return whether a routing key is that of a requester who takes replies directly, or made to look so."""
    return key.startswith(REPLY_TO) and (key == REPLY_TO or key[len(REPLY_TO)] == ".")
