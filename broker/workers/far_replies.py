"""Direct replies over all workers: each knows the requesters of the others, and sends them what is theirs."""

from __future__ import annotations

from functools import partial

from broker.engine.answers import Answer
from broker.engine.client.replies import ReplyClient, ReplyTaker
from broker.workers import link_frames as f
from broker.workers.link_values import CODEC
from broker.workers.neighbours import Neighbours


class FarReplies(ReplyClient):
    """As `ReplyClient`; `own` are the routing keys of requesters of this worker."""

    def __init__(self, neighbours: Neighbours) -> None:
        super().__init__()
        self._neighbours = neighbours
        self.own: dict[str, None] = {}
        self._far: dict[str, int] = {}

    def begin(self, key: str, take: ReplyTaker) -> Answer[None]:
        self.takers[key] = take
        self.own[key] = None
        return self._neighbours.directory.reply_taken(key, is_there=True)

    def end(self, key: str) -> None:
        if self.takers.pop(key, None) is not None:
            del self.own[key]
            self._neighbours.directory.reply_taken(key, is_there=False)

    def note(self, worker: int, key: str, *, is_there: bool) -> None:
        """Note a requester of another worker; or that it is there no more."""
        if is_there:
            self._far[key] = worker
            self.takers[key] = partial(self._send, worker, key)
        elif self._far.pop(key, None) is not None:
            del self.takers[key]

    def forget(self, worker: int) -> None:
        """Forget the requesters of another worker."""
        for key in [key for key, number in self._far.items() if number == worker]:
            self.note(worker, key, is_there=False)

    def _send(self, worker: int, key: str, properties: list[bytes], bodies: list[bytes]) -> None:
        """Send replies to a requester of another worker; it may be gone by now."""
        link = self._neighbours.link(worker)
        if link.is_up:
            link.send(CODEC.frame(f.REPLIES, key, properties, bodies))

    def give(self, key: str, properties: list[bytes], bodies: list[bytes]) -> None:
        """Give replies that came from another worker to a requester of this one."""
        take = self.takers.get(key)
        if take is not None:
            take(properties, bodies)
