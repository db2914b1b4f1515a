"""The subscribers of topics that hear what is published through `amq.topic`, beside its queues."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from queue_manager.outcomes import ACCEPTED, REFUSED_SESSION, UNROUTED
from storage.envelope import EnvelopeTemplate

UNHEARD: Final = 0  # there is no subscriber
HEARD: Final = 1
STORED: Final = 2  # by a session that lasts, or as retained: certain when the open commit is


SessionsAhead = Mapping[Hashable, tuple[int, int]]
"""Messages, and bytes of body, that sessions will have taken of publishes that are judged together."""

NOTHING_AHEAD: Final[SessionsAhead] = {}


class Audience(Protocol):
    """The subscribers of messages published alike. It keeps itself current as subscriptions come and go."""

    def is_there(self) -> bool:
        """Whether there is a subscriber."""

    def has_room(self, count: int, body_bytes: int, ahead: SessionsAhead = NOTHING_AHEAD) -> bool:
        """Whether every session that may refuse publishers takes so many messages of so many bytes in all,
        behind those that come before.
        """

    def count_ahead(self, count: int, body_bytes: int, ahead: dict[Hashable, tuple[int, int]]) -> None:
        """Add to `ahead` what sessions that may refuse will have taken: so many messages of so many bytes."""

    def hear(self, bodies: list[bytes]) -> int:
        """Give messages to the subscribers: UNHEARD, HEARD or STORED. Nothing is refused any more."""


def tell(audience: Audience, bodies: list[bytes]) -> tuple[int, bool]:
    """Publish to an audience alone: the outcome, and whether it was stored with the open commit."""
    if not audience.has_room(len(bodies), sum(map(len, bodies))):
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

    def of(self, vhost: str) -> Topics | None:
        """Return the topics of a virtual host, once a client may subscribe there."""
        return self._by_vhost.get(vhost)

    def audience(self, vhost: str, keys: Sequence[str], template: EnvelopeTemplate) -> Audience | None:
        """Do as `Topics.audience`, in a virtual host, which its subscribers may join later."""
        topics = self._by_vhost.get(vhost)
        return _Awaited(self, vhost, keys, template) if topics is None else topics.audience(keys, template)


@dataclass(eq=False, repr=False, slots=True)
class _Awaited:
    """The audience of messages in a virtual host that no subscriber was in yet. Implements `Audience`."""

    _spaces: TopicSpaces
    _vhost: str
    _keys: Sequence[str]
    _template: EnvelopeTemplate
    _found: Audience | None = field(default=None, init=False)

    def _audience(self) -> Audience | None:
        if self._found is None:
            topics = self._spaces.of(self._vhost)
            self._found = None if topics is None else topics.audience(self._keys, self._template)
        return self._found

    def is_there(self) -> bool:
        audience = self._audience()
        return audience is not None and audience.is_there()

    def has_room(self, count: int, body_bytes: int, ahead: SessionsAhead = NOTHING_AHEAD) -> bool:
        audience = self._audience()
        return audience is None or audience.has_room(count, body_bytes, ahead)

    def count_ahead(self, count: int, body_bytes: int, ahead: dict[Hashable, tuple[int, int]]) -> None:
        audience = self._audience()
        if audience is not None:
            audience.count_ahead(count, body_bytes, ahead)

    def hear(self, bodies: list[bytes]) -> int:
        audience = self._audience()
        return UNHEARD if audience is None else audience.hear(bodies)
