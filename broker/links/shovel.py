"""A shovel: takes messages from a queue or exchange of one broker and publishes them at another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pamqp import commands

from broker.links.amqp_peer import AmqpPeer, OpenHere, connect_any
from broker.links.amqp_uri import without_login
from broker.links.haul import NO_ACK, Haul
from broker.links.relay import Parcel
from broker.links.shovel_settings import QUEUE_LENGTH, End, ShovelSettings
from broker.links.supervised_link import Link
from broker.vhosts.hub import Hub
from protocols.amqp091 import content
from protocols.amqp091.client import encode_publish
from protocols.amqp091.methods import unchecked

FORWARDED: Final = "x-shovelled"
_TIMESTAMP: Final = "x-shovelled-timestamp"


class Shovel(Link):
    """One shovel, which lives as long as its parameter."""

    component = "shovel"

    def __init__(self, hub: Hub, name: str, settings: ShovelSettings, open_here: OpenHere) -> None:
        super().__init__(hub, name)
        self.retry_s = settings.reconnect_s
        self._settings = settings
        self._open_here = open_here
        self._remaining: int | None = None  # to be passed on; None: no end
        if isinstance(settings.delete_after, int):
            self._remaining = settings.delete_after
        self._run_now: _Run | None = None

    @property
    def pending_count(self) -> int:
        return 0 if self._run_now is None else len(self._run_now.relay.unconfirmed)

    @property
    def details(self) -> dict[str, Any]:
        settings, run = self._settings, self._run_now
        told: dict[str, Any] = {
            "remaining": "unlimited" if self._remaining is None else self._remaining,
            "blocked": run is not None and run.target.is_blocked,
        }
        for side, end in (("src", settings.source), ("dest", settings.target)):
            told[f"{side}_uri"] = without_login(end.shown[0])
            named = {"queue": end.queue, "exchange": end.exchange, "exchange_key": end.key}
            told |= {f"{side}_{key}": value for key, value in named.items() if value is not None}
        return told

    async def serve(self) -> None:
        settings = self._settings
        name = f"Shovel {self.name}"
        number, source = await connect_any(settings.source.uris, self._open_here, name, "the source")
        target: AmqpPeer | None = None
        try:
            other, target = await connect_any(settings.target.uris, self._open_here, name, "the target")
            await self._declare(source, settings.source)
            await self._declare(target, settings.target)
            queue, length = await self._source_queue(source)
            if settings.delete_after == QUEUE_LENGTH and self._remaining is None:
                self._remaining = length
            shown = settings.source.shown[number], settings.target.shown[other]
            self._run_now = _Run(self, settings, source, target, shown)
            if self._remaining != 0:
                await self._run_now.run(queue, self.is_up)
        finally:
            self._run_now = None
            await source.close()
            if target is not None:
                await target.close()

    async def _declare(self, peer: AmqpPeer, end: End) -> None:
        """Declare the queue of an end, unless it is there."""
        if end.queue is None:
            if end.exchange:
                passive = unchecked(commands.Exchange.Declare, exchange=end.exchange, passive=True)
                await peer.call(passive, commands.Exchange.DeclareOk)
            return
        passive_queue = unchecked(commands.Queue.Declare, queue=end.queue, passive=True)
        if end.is_predeclared:
            await peer.call(passive_queue, commands.Queue.DeclareOk)
        elif await peer.is_there(passive_queue, commands.Queue.DeclareOk) is None:
            declare = unchecked(
                commands.Queue.Declare, queue=end.queue, durable=True, arguments=dict(end.arguments)
            )
            await peer.call(declare, commands.Queue.DeclareOk)

    async def _source_queue(self, source: AmqpPeer) -> tuple[str, int]:
        """Return the queue to consume, and how many messages it has; that of an exchange is made."""
        end = self._settings.source
        if end.queue is not None:
            passive = unchecked(commands.Queue.Declare, queue=end.queue, passive=True)
            found = await source.call(passive, commands.Queue.DeclareOk)
            return end.queue, found.message_count
        own = unchecked(commands.Queue.Declare, queue="", exclusive=True, arguments=dict(end.arguments))
        queue = (await source.call(own, commands.Queue.DeclareOk)).queue
        bind = unchecked(
            commands.Queue.Bind, queue=queue, exchange=end.exchange or "", routing_key=end.key or ""
        )
        await source.call(bind, commands.Queue.BindOk)
        return queue, 0

    def acknowledged(self, count: int) -> bool:
        """Count what was passed on; whether that was the last to be."""
        self.moved_count += count
        if self._remaining is not None:
            self._remaining -= count
        return self._remaining == 0

    @property
    def remaining(self) -> int | None:
        """How many are still to be passed on; None: all."""
        return self._remaining


class _Run:
    """One connection of a shovel to both ends."""

    def __init__(
        self,
        shovel: Shovel,
        settings: ShovelSettings,
        source: AmqpPeer,
        target: AmqpPeer,
        shown: tuple[str, str],
    ) -> None:
        self._shovel = shovel
        self._settings = settings
        self.target = target
        self._haul = Haul(
            source,
            target,
            settings.ack_mode,
            seal=self._seal,
            choose=self._wanted,
            passed_on=shovel.acknowledged,
        )
        self.relay = self._haul.relay
        self._taken_max = shovel.remaining
        self._forward_header = _forward_header(shovel, settings, target, shown)
        self._is_changed = bool(
            settings.adds_forward_headers or settings.adds_timestamp or settings.properties
        )

    async def run(self, queue: str, is_up: Callable[[], None]) -> None:
        """Pass messages on, until all are that were to be. Raises LinkLost."""
        settings, haul = self._settings, self._haul
        await haul.prepare(settings.prefetch)
        consume = unchecked(
            commands.Basic.Consume,
            queue=queue,
            no_ack=settings.ack_mode == NO_ACK,
            arguments=dict(settings.consumer_arguments),
        )
        await haul.source.call(consume, commands.Basic.ConsumeOk)
        is_up()
        await haul.run()

    def _wanted(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Return those that are to be passed on: the others stay where they are."""
        if self._taken_max is None:
            return parcels
        wanted = parcels[: self._taken_max]
        self._taken_max -= len(wanted)
        return wanted

    def _seal(self, parcel: Parcel) -> bytes:
        end, target = self._settings.target, self.target
        properties = self._changed(parcel.properties) if self._is_changed else parcel.properties
        if end.queue is not None:
            exchange, key = "", end.queue
        else:
            exchange = parcel.exchange if end.exchange is None else end.exchange
            key = parcel.routing_key if end.key is None else end.key
        return encode_publish(
            key,
            parcel.body,
            properties,
            exchange=exchange,
            mandatory=end.queue is not None,
            body_frame_bytes_max=target.body_frame_bytes_max,
        )

    def _changed(self, raw: bytes) -> bytes:
        """Return properties with what the shovel sets and adds."""
        settings = self._settings
        properties, headers = content.decode_properties(raw), content.decode_headers(raw)
        for name, value in settings.properties.items():
            if name == "headers":
                headers = list(value.items())
            elif name == "timestamp":
                properties.timestamp = datetime.fromtimestamp(value, UTC)
            else:
                setattr(properties, "message_type" if name == "type" else name, value)
        if settings.adds_forward_headers:
            before: Any = next((value for name, value in headers if name == FORWARDED), [])
            headers = [each for each in headers if each[0] != FORWARDED]
            headers.append((FORWARDED, [self._forward_header, *(before if isinstance(before, list) else [])]))
        if settings.adds_timestamp:
            headers = [each for each in headers if each[0] != _TIMESTAMP]
            headers.append((_TIMESTAMP, self._shovel.clock.now_ms() // 1000))
        return content.encode_properties(properties, headers)


def _forward_header(
    shovel: Shovel, settings: ShovelSettings, target: AmqpPeer, shown: tuple[str, str]
) -> dict[str, Any]:
    """Return what is added to `x-shovelled`."""
    told: dict[str, Any] = {
        "shovelled-by": str(target.server.get("cluster_name", "")),
        "shovel-type": "dynamic",
        "shovel-name": shovel.name,
        "shovel-vhost": shovel.hub.vhost.name,
    }
    for side, end, uri in (("src", settings.source, shown[0]), ("dest", settings.target, shown[1])):
        told[f"{side}-uri"] = without_login(uri)
        named = {"queue": end.queue, "exchange": end.exchange, "exchange-key": end.key}
        told |= {f"{side}-{key}": value for key, value in named.items() if value is not None}
    return told
