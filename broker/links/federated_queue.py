"""One queue and its upstream: what waits there comes here as long as somebody here has room for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from pamqp import commands

from broker.engine.answers import Answer
from broker.links.amqp_peer import AmqpPeer, OpenHere, connect, connect_any
from broker.links.amqp_uri import read_uri, without_login
from broker.links.haul import NO_ACK, Haul
from broker.links.relay import Parcel
from broker.links.supervised_link import Link
from broker.links.upstream_settings import UpstreamSettings
from broker.vhosts.hub import Hub
from config import limits
from protocols.amqp091.client import encode_publish
from protocols.amqp091.methods import unchecked
from queue_manager.errors import QueueManagerError
from storage.errors import StorageError

_PRIORITY: Final = -1
"""Behind the consumers there; they are no reason either for other links to fetch."""


class FederatedQueue(Link):
    """Fetches for one queue from one upstream."""

    component = "federation"

    def __init__(self, hub: Hub, queue: str, settings: UpstreamSettings, open_here: OpenHere) -> None:
        super().__init__(hub, f"{queue} from {settings.name}")
        self.retry_s = settings.reconnect_s
        self._queue = queue
        self._federation = hub.client.federation
        self._settings = settings
        self._open_here = open_here
        self._source = settings.queue or queue
        self._haul: Haul | None = None
        self._is_fetching = False

    @property
    def pending_count(self) -> int:
        return 0 if self._haul is None else len(self._haul.relay.unconfirmed)

    @property
    def details(self) -> dict[str, Any]:
        return {
            "type": "queue",
            "queue": self._queue,
            "upstream": self._settings.name,
            "upstream_queue": self._source,
            "consumer_tag": self._settings.consumer_tag,
            "uri": without_login(self._settings.shown[0]),
            "fetching": self._is_fetching,
        }

    async def serve(self) -> None:
        settings = self._settings
        name = f"Federation {self.name}"
        _, upstream = await connect_any(settings.uris, self._open_here, name, "the upstream")
        target: AmqpPeer | None = None
        try:
            here = read_uri("amqp://", self.hub.vhost.name)
            target = await connect(here, self._open_here, name, "this broker")
            passive = unchecked(commands.Queue.Declare, queue=self._source, passive=True)
            if await upstream.is_there(passive, commands.Queue.DeclareOk) is None:
                kind: dict[str, Any] = {"x-queue-type": settings.queue_type} if settings.queue_type else {}
                declare = unchecked(commands.Queue.Declare, queue=self._source, durable=True, arguments=kind)
                await upstream.call(declare, commands.Queue.DeclareOk)
            haul = self._haul = Haul(
                upstream, target, settings.ack_mode, seal=self._seal, choose=_all, passed_on=self._moved
            )
            await haul.prepare(settings.prefetch)
            self._is_fetching = False
            self.is_up()
            await haul.run(self._fetch_and_pause())
        finally:
            self._haul = None
            self._is_fetching = False
            await upstream.close()
            if target is not None:
                await target.close()

    async def _fetch_and_pause(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(limits.FEDERATION_QUEUE_LOOK_S)

    def _look(self) -> None:
        """Fetch if somebody here has room, and pause if nobody has."""
        self._federation.wants_more(self._queue).then(self._fetch_or_pause)

    def _fetch_or_pause(self, answer: Answer[bool]) -> None:
        haul, settings = self._haul, self._settings
        try:
            wants_more = answer.result()
        except (QueueManagerError, StorageError):
            wants_more = False  # the worker that has the queue is gone
        if haul is None or wants_more is self._is_fetching:
            return
        self._is_fetching = wants_more
        if wants_more:
            haul.source.say(
                unchecked(
                    commands.Basic.Consume,
                    queue=self._source,
                    consumer_tag=settings.consumer_tag,
                    no_ack=settings.ack_mode == NO_ACK,
                    arguments={"x-priority": _PRIORITY},
                )
            )
        else:
            haul.source.say(commands.Basic.Cancel(consumer_tag=settings.consumer_tag))

    def _moved(self, count: int) -> bool:
        self.moved_count += count
        self._look()
        return False

    def _seal(self, parcel: Parcel) -> bytes:
        return encode_publish(self._queue, parcel.body, parcel.properties, mandatory=True)


def _all(parcels: Sequence[Parcel]) -> Sequence[Parcel]:
    return parcels
