"""Retained messages of other workers: found there and told by the page, as who asked sends them on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from broker.engine.answers import Answer
from broker.engine.client import ShardClient
from broker.engine.elsewhere import Pages
from broker.engine.shard_ending import WorkerLost
from broker.workers.asking_link import Link
from config import limits
from queue_manager.address import qualified_topic, vhost_of_topic
from queue_manager.errors import LimitReached, QueueManagerError
from queue_manager.model import Message
from queue_manager.retained_messages import RetainedMessage
from storage.envelope import EnvelopeTemplate, decode_envelope
from storage.errors import StorageError

Told = tuple[bytes, int, bytes, str | None]
"""Envelope, QoS, body and user of a retained message."""

Page = tuple[int, list[Told]]
"""The number of the search, 0 if this is its end, and what was found."""


class RetainedSearches:
    """The searches that other workers make here, each somewhere in the tree."""

    def __init__(self, local: ShardClient) -> None:
        self._local = local
        self._open: dict[int, dict[int, Iterator[RetainedMessage | None]]] = {}
        self._count = 0

    def find(self, worker: int, vhost: str, topic_filter: str) -> Page:
        """Begin a search for what a filter matches. Raises LimitReached."""
        opened = self._open.setdefault(worker, {})
        if len(opened) >= limits.RETAINED_SEARCHES_MAX:
            raise LimitReached("too many searches for retained messages")
        self._count = number = self._count + 1
        opened[number] = self._local.retained.within(vhost).matching(topic_filter)
        return self.go_on(worker, number)

    def go_on(self, worker: int, number: int) -> Page:
        """Go on with a search."""
        opened = self._open.setdefault(worker, {})
        page: list[Told] = []
        body_bytes = 0
        for message in opened.get(number, ()):
            if message is None:  # others have their turn
                return number, page
            page.append(told_of(message))
            body_bytes += len(message.body)
            if len(page) >= limits.RETAINED_PAGE_MESSAGES_MAX or body_bytes > limits.RETAINED_PAGE_BYTES_MAX:
                return number, page
        opened.pop(number, None)
        return 0, page

    def end(self, worker: int, number: int) -> None:
        """End a search that nobody goes on with."""
        self._open.get(worker, {}).pop(number, None)

    def forget(self, worker: int) -> None:
        """Forget the searches of a worker that is gone."""
        self._open.pop(worker, None)

    def adopt(self, vhost: str, told: Sequence[Told]) -> None:
        """Retain what another worker retained so far, where nothing newer is here."""
        retained = self._local.retained.within(vhost)
        for message in map(shown, told):
            if not any(each is not None for each in retained.matching(message.topic)):
                retained.keep(message.template, message.qos, message.body, message.user)


def shown(told: Told) -> RetainedMessage:
    """Return a message that was told."""
    envelope, qos, body, user = told
    _, received_at_ms, template = decode_envelope(envelope)
    return RetainedMessage(template, qos, body, received_at_ms, user)


class Ways(Protocol):
    """The ways to the other workers."""

    number: int

    def link(self, number: int) -> Link:
        """Return the way to a worker, which may be gone."""

    def reach(self, number: int) -> Answer[Link]:
        """Return the way to a worker; one that is started again is waited for. Comes to WorkerLost."""


class FarPages:
    """What other workers find, one after the other. Implements `broker.engine.elsewhere.Pages`."""

    def __init__(self, links: Ways, workers: Sequence[int], vhost: str, topic_filter: str) -> None:
        self._links = links
        self._asked = vhost, topic_filter
        self._found: deque[RetainedMessage] = deque()
        self._searches: dict[Link, int] = {}
        self._gone: list[int] = []
        self._open_count = len(workers)
        self.arrived: Answer[None] = Answer()
        for worker in workers:
            link = links.link(worker)
            link.call("retained", "find", links.number, vhost, topic_filter).then(partial(self._came, link))
        if not workers:
            self.arrived.resolve(None)

    def later(self) -> list[Answer[Pages]]:
        """See `Pages`."""
        return [
            self._links.reach(worker).map(lambda link: FarPages(self._links, [link.number], *self._asked))
            for worker in self._gone
        ]

    def _came(self, link: Link, answer: Answer[Any]) -> None:
        """Take a page; the next is asked for when this one was gone through."""
        try:
            number, page = answer.result()
        except (QueueManagerError, StorageError) as error:
            number, page = 0, []
            if isinstance(error, WorkerLost):
                self._gone.append(link.number)
        self._found.extend(map(shown, page))
        if number:
            self._searches[link] = number
        else:
            self._open_count -= 1
        if not self.arrived.is_done:
            self.arrived.resolve(None)

    def __iter__(self) -> Iterator[RetainedMessage | None]:
        try:
            while True:
                while self._found:
                    yield self._found.popleft()
                if not self._open_count:
                    return
                searches, self._searches = self._searches, {}
                self.arrived = Answer()
                for link, number in searches.items():
                    link.call("retained", "go_on", self._links.number, number).then(partial(self._came, link))
                yield None
        finally:
            for link, number in self._searches.items():
                link.call("retained", "end", self._links.number, number)


def told_of(message: RetainedMessage) -> Told:
    """Return what another worker is told of a message."""
    envelope = Message(0, 0, None, message.template, message.received_at_ms).envelope()
    return envelope, message.qos, message.body, message.user


async def move_retained(
    local: ShardClient, links: Sequence[Link], keeper_of: Callable[[str, str], int]
) -> None:
    """Have each retained message at the worker that keeps it: the number of workers was another one. Raises
    WorkerLost.
    """
    by_place: dict[tuple[int, str], list[str]] = {}
    for topic in local.shard.manager.retained.topics:
        vhost = vhost_of_topic(topic)
        own = topic[len(qualified_topic(vhost, "")) :]
        keeper = keeper_of(vhost, own)
        by_place.setdefault((keeper, vhost), []).append(own)
    for link in links:
        for (keeper, vhost), topics in by_place.items():
            if keeper != link.number:
                continue
            retained = local.retained.within(vhost)
            size = limits.RETAINED_PAGE_MESSAGES_MAX
            for part in [topics[at : at + size] for at in range(0, len(topics), size)]:
                found = [message for topic in part for message in retained.matching(topic) if message]
                await link.call("retained", "adopt", vhost, list(map(told_of, found)))
                for topic in part:
                    retained.keep(EnvelopeTemplate(topic), 0, b"")
