"""Direct reply-to: who asks, under which address, and the replies on their way (docs/amqp.md)."""

from __future__ import annotations

from dataclasses import dataclass, field

REPLY_TO = "amq.rabbitmq.reply-to"


class WrongReply(Exception):
    """The broker gave a reply, or the address for one, that it should not have given."""


@dataclass(eq=False)
class Asker:
    """A consumer of replies. `address`: what responders are told, None until one was told."""

    client: str
    tag: str
    address: str | None = None
    owed: list[str] = field(default_factory=list)


class Replies:
    """All that ask, and all that did."""

    def __init__(self) -> None:
        self.asking: dict[str, Asker] = {}
        self.known: list[Asker] = []

    def begin(self, client: str, tag: str) -> None:
        self.asking[client] = Asker(client, tag)

    def end(self, client: str) -> None:
        """Its consumer or its channel has gone; what is on its way to it is lost."""
        self.asking.pop(client, None)

    def told(self, asker: Asker | None, address: str | None) -> None:
        """A responder was given a request with this reply-to. Raises WrongReply."""
        if asker is None:
            if address:
                raise WrongReply(f"reply_to {address!r} of a message that asked for no reply")
            return
        if asker.address is None and address and address.startswith(REPLY_TO + "."):
            if any(other.address == address for other in self.known):
                raise WrongReply(f"{address!r} is the address of another")
            asker.address = address
            self.known.append(asker)
        if address != asker.address:
            raise WrongReply(f"reply_to {address!r}, that of {asker.client} is {asker.address!r}")

    def answer(self, address: str, body: str) -> bool:
        """A reply is published to an address: whether there is somebody to take it."""
        for asker in self.asking.values():
            if asker.address == address:
                asker.owed.append(body)
                return True
        return False

    def delivered(self, client: str, tag: str, body: str) -> bool:
        """Whether a delivery was a reply. Raises WrongReply."""
        asker = self.asking.get(client)
        if asker is None or asker.tag != tag:
            return False
        if not asker.owed or asker.owed[0] != body:
            raise WrongReply(f"reply {body!r} to {client}, {asker.owed} are on their way")
        del asker.owed[0]
        return True

    def owed(self) -> str | None:
        for asker in self.asking.values():
            if asker.owed:
                return f"reply {asker.owed[0]!r} to {asker.client}"
        return None
