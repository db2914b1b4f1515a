"""The errors in what a peer sent, as the peer is told them."""

from typing import Final

from protocols.amqp10.constants import DECODE_ERROR

CONNECTION: Final = 0
SESSION: Final = 1
LINK: Final = 2


class AmqpError(Exception):
    """The peer broke the protocol.

    `condition` is the error condition (2.8.14), `description` a text fit to show the peer, `scope`
    what ends of it: CONNECTION, SESSION or LINK.
    """

    def __init__(self, condition: str, description: str, scope: int = CONNECTION) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description
        self.scope = scope

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}"


def malformed(what: str) -> AmqpError:
    """Make the error for bytes that cannot be decoded."""
    return AmqpError(DECODE_ERROR, what)
