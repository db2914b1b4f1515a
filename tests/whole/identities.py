"""What a queue remembers of publishes that have an identity: docs/semantics/deduplication.md."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

NEW, REPEATED, REFUSED, UNKNOWN = "new", "repeated", "refused", "unknown"


@dataclass(frozen=True)
class Identity:
    """The identity of a publish: a deduplication identifier, or a producer with a sequence number."""

    identifier: str = ""
    producer: str = ""
    sequence: int = 0

    def __bool__(self) -> bool:
        return bool(self.identifier or self.producer)


@dataclass
class Producer:
    """The last number taken, with its body; `refused`: the lowest that found no room since."""

    last: int = -1
    body: str = ""
    refused: int | None = None


@dataclass
class Identities:
    """The memory of one queue. None stands for what cannot be known."""

    bodies: dict[str, str | None] = field(default_factory=dict)
    producers: dict[str, Producer | None] = field(default_factory=dict)

    def judge(self, identity: Identity, body: str) -> str:
        """NEW, REPEATED (confirmed and not queued again), REFUSED or UNKNOWN."""
        if identity.identifier:
            if identity.identifier not in self.bodies:
                return NEW
            known = self.bodies[identity.identifier]
            if known is None:
                return UNKNOWN
            return REPEATED if known == body else REFUSED
        if identity.producer not in self.producers:
            return NEW
        producer = self.producers[identity.producer]
        if producer is None:
            return UNKNOWN
        if identity.sequence < producer.last:
            return REPEATED
        if identity.sequence == producer.last:
            return REPEATED if body == producer.body else REFUSED
        late = producer.refused is not None and identity.sequence > producer.refused
        return REFUSED if late else NEW

    def took(self, identity: Identity, body: str) -> None:
        if identity.identifier:
            self.bodies[identity.identifier] = body
        elif identity.producer:
            self.producers[identity.producer] = Producer(identity.sequence, body)

    def had_no_room(self, identity: Identity) -> None:
        """What the producer sends next is refused until this number is sent again."""
        if not identity.producer:
            return
        known = self.producers.setdefault(identity.producer, Producer())
        if known is not None:
            known.refused = (
                identity.sequence if known.refused is None else min(identity.sequence, known.refused)
            )

    def lost_track(self, identity: Identity) -> None:
        """Whether the publish was taken is not known."""
        if identity.identifier:
            self.bodies[identity.identifier] = None
        elif identity.producer:
            self.producers[identity.producer] = None

    def copy(self) -> Identities:
        return copy.deepcopy(self)
