"""The subscribers of topics that hear what is published through `amq.topic`, beside its queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from queue_manager.outcomes import ACCEPTED, REFUSED_SESSION, UNROUTED
from storage.envelope import EnvelopeTemplate

UNHEARD: Final = 0  # there is no subscriber
HEARD: Final = 1
STORED: Final = 2  # by a session that lasts, or as retained: certain when the open commit is


class Audience(Protocol):
    """The subscribers of messages published alike. It keeps itself current as subscriptions come and go."""

    def has_room(self, bodies: list[bytes]) -> bool:
        """Whether every session that may refuse publishers takes all of these."""

    def hear(self, bodies: list[bytes]) -> int:
        """Give messages to the subscribers: UNHEARD, HEARD or STORED. Nothing is refused any more."""


def tell(audience: Audience, bodies: list[bytes]) -> tuple[int, bool]:
    """Publish to an audience alone: the outcome, and whether it was stored with the open commit."""
    if not audience.has_room(bodies):
        return REFUSED_SESSION, False
    heard = audience.hear(bodies)
    return UNROUTED if heard == UNHEARD else ACCEPTED, heard == STORED


class Topics(Protocol):
    """The topics of one virtual host: what clients subscribe to."""

    def audience(self, keys: Sequence[str], template: EnvelopeTemplate) -> Audience | None:
        """Return the subscribers of messages of a template, found by these routing keys; None where the
        first is no topic.
        """


class TopicSpaces:
    """The topics of each virtual host that has subscribers."""

    __slots__ = ("_by_vhost",)

    def __init__(self) -> None:
        self._by_vhost: dict[str, Topics] = {}

    def join(self, vhost: str, topics: Topics | None) -> None:
        """Have the subscribers of a virtual host hear what is published there; None: it is deleted."""
        self._by_vhost.pop(vhost, None)
        if topics is not None:
            self._by_vhost[vhost] = topics

    def audience(self, vhost: str, keys: Sequence[str], template: EnvelopeTemplate) -> Audience | None:
        """As `Topics.audience`, in a virtual host."""
        topics = self._by_vhost.get(vhost)
        return None if topics is None else topics.audience(keys, template)
