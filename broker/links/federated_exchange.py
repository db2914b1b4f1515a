"""One exchange and its upstream: the bindings here are made there, too, and what they match comes here.

There a durable queue keeps what comes while this broker is away. The bindings lead to an exchange between,
A or B: a new one is made at each start, so that none is left of those that are gone here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

import structlog
from pamqp import commands

from broker.links.amqp_peer import AmqpPeer, OpenHere, connect, connect_any
from broker.links.amqp_uri import read_uri, without_login
from broker.links.haul import NO_ACK, Haul
from broker.links.relay import Parcel
from broker.links.supervised_link import Link, LinkLost
from broker.links.upstream_settings import UpstreamSettings
from broker.vhosts.hub import Hub
from config import limits
from protocols.amqp091 import content
from protocols.amqp091.client import encode_publish
from protocols.amqp091.methods import unchecked
from queue_manager.api import BindingDefinition
from queue_manager.errors import QueueManagerError

_log: Final = structlog.get_logger("sluicemq.link")

RECEIVED_FROM: Final = "x-received-from"
BOUND_FROM: Final = "x-bound-from"
_NAME_BYTES_MAX: Final = 250  # with the suffix behind it a name of AMQP


class FederatedExchange(Link):
    """Fetches for one exchange from one upstream."""

    component = "federation"

    def __init__(
        self, hub: Hub, exchange: str, settings: UpstreamSettings, open_here: OpenHere, cluster_name: str
    ) -> None:
        super().__init__(hub, f"{exchange} from {settings.name}")
        self.retry_s = settings.reconnect_s
        self._exchange = exchange
        self._exchanges = hub.client.exchanges
        self._settings = settings
        self._open_here = open_here
        self._cluster_name = cluster_name
        self._source = settings.exchange or exchange
        self._queue = _queue_name(self._source, f"{cluster_name}:{exchange}", hub.vhost.name)
        self._bound: dict[tuple[str, str], BindingDefinition] = {}
        self._between = ""
        self._from = ("", "", "")  # the upstream: URI, cluster, virtual host
        self._haul: Haul | None = None

    @property
    def pending_count(self) -> int:
        return 0 if self._haul is None else len(self._haul.relay.unconfirmed)

    @property
    def details(self) -> dict[str, Any]:
        return {
            "type": "exchange",
            "exchange": self._exchange,
            "upstream": self._settings.name,
            "upstream_exchange": self._source,
            "uri": without_login(self._settings.shown[0]),
        }

    async def serve(self) -> None:
        settings = self._settings
        name = f"Federation {self.name}"
        number, upstream = await connect_any(settings.uris, self._open_here, name, "the upstream")
        target: AmqpPeer | None = None
        try:
            here = read_uri("amqp://", self.hub.vhost.name)
            target = await connect(here, self._open_here, name, "this broker")
            cluster = str(upstream.server.get("cluster_name", ""))
            self._from = without_login(settings.shown[number]), cluster, settings.uris[number].vhost
            await self._declare(upstream)
            haul = self._haul = Haul(
                upstream,
                target,
                settings.ack_mode,
                seal=self._seal,
                choose=self._choose,
                passed_on=self._moved,
            )
            await haul.prepare(settings.prefetch)
            consume = unchecked(
                commands.Basic.Consume,
                queue=self._queue,
                consumer_tag=settings.consumer_tag,
                no_ack=settings.ack_mode == NO_ACK,
            )
            await upstream.call(consume, commands.Basic.ConsumeOk)
            self.is_up()
            await haul.run(self._follow_bindings(upstream))
        finally:
            self._haul = None
            await upstream.close()
            if target is not None:
                await target.close()

    def _moved(self, count: int) -> bool:
        self.moved_count += count
        return False

    # the upstream

    async def _declare(self, upstream: AmqpPeer) -> None:
        """Have the exchange, the queue, a new exchange between with all bindings, and no older one."""
        await self._declare_source(upstream)
        settings = self._settings
        told: dict[str, Any] = {
            "x-expires": settings.expires_ms,
            "x-message-ttl": settings.message_ttl_ms,
            "x-queue-type": settings.queue_type,
        }
        arguments = {key: value for key, value in told.items() if value is not None}
        declare = unchecked(commands.Queue.Declare, queue=self._queue, durable=True, arguments=arguments)
        await upstream.call(declare, commands.Queue.DeclareOk)
        older = [f"{self._queue} A", f"{self._queue} B"]
        passive = unchecked(commands.Exchange.Declare, exchange=older[0], passive=True)
        if await upstream.is_there(passive, commands.Exchange.DeclareOk) is None:
            older.reverse()
        self._between = older.pop()
        await upstream.call(
            unchecked(commands.Exchange.Delete, exchange=self._between), commands.Exchange.DeleteOk
        )
        between = unchecked(
            commands.Exchange.Declare,
            exchange=self._between,
            exchange_type="fanout",
            durable=True,
            internal=True,
        )
        await upstream.call(between, commands.Exchange.DeclareOk)
        self._bound = {}
        for key, binding in (await self._bindings()).items():
            await upstream.call(self._bind(binding), commands.Exchange.BindOk)
            self._bound[key] = binding
        bind = unchecked(commands.Queue.Bind, queue=self._queue, exchange=self._between)
        await upstream.call(bind, commands.Queue.BindOk)
        await upstream.call(
            unchecked(commands.Exchange.Delete, exchange=older[0]), commands.Exchange.DeleteOk
        )

    async def _declare_source(self, upstream: AmqpPeer) -> None:
        """Declare the exchange there as it is here, unless it is there."""
        passive = unchecked(commands.Exchange.Declare, exchange=self._source, passive=True)
        if await upstream.is_there(passive, commands.Exchange.DeclareOk) is not None:
            return
        try:
            here = await self._exchanges.look(self._exchange)
        except QueueManagerError as error:
            raise LinkLost(error.reason) from None
        declare = unchecked(
            commands.Exchange.Declare,
            exchange=self._source,
            exchange_type=here.type,
            durable=here.durable,
            auto_delete=here.auto_delete,
            arguments={**here.arguments},
        )
        await upstream.call(declare, commands.Exchange.DeclareOk)

    async def _bindings(self) -> dict[tuple[str, str], BindingDefinition]:
        """Return the bindings of the exchange here that are to be made there."""
        try:
            found = await self._exchanges.bindings(source=self._exchange)
        except QueueManagerError as error:
            raise LinkLost(error.reason) from None
        return {
            (each.routing_key, repr(sorted(each.arguments.items()))): each
            for each in found
            if self._hops_of(each.arguments) > 0
        }

    def _hops_of(self, arguments: Mapping[str, object]) -> int:
        """Return over how many links messages of a binding may still come, this one included."""
        before = arguments.get(BOUND_FROM)
        if not isinstance(before, list) or not before:
            return self._settings.max_hops
        if any(self._is_upstream(each) for each in before):
            return 0
        hops = before[0].get("hops", 1) if isinstance(before[0], dict) else 1
        return min(int(hops) - 1, self._settings.max_hops)

    def _is_upstream(self, entry: object) -> bool:
        """Return whether it is the upstream itself that asked for a binding."""
        _, cluster, vhost = self._from
        return isinstance(entry, dict) and (entry.get("cluster-name"), entry.get("vhost")) == (cluster, vhost)

    def _bind(self, binding: BindingDefinition) -> commands.Exchange.Bind:
        return unchecked(
            commands.Exchange.Bind,
            destination=self._between,
            source=self._source,
            routing_key=binding.routing_key,
            arguments=self._arguments(binding),
        )

    def _arguments(self, binding: BindingDefinition) -> dict[str, Any]:
        """Return those of the binding there: they tell who asks for it, so that no circle keeps it up."""
        before = binding.arguments.get(BOUND_FROM)
        entry = {
            "cluster-name": self._cluster_name,
            "vhost": self.hub.vhost.name,
            "exchange": f"{self.hub.vhost.name}:{self._exchange}",
            "hops": self._hops_of(binding.arguments),
        }
        told = [entry, *(before if isinstance(before, list) else [])]
        return {**binding.arguments, BOUND_FROM: told}

    async def _follow_bindings(self, upstream: AmqpPeer) -> None:
        """Have the bindings there as they are here."""
        while True:
            await asyncio.sleep(limits.FEDERATION_LOOK_S)
            wanted = await self._bindings()
            for key in wanted.keys() - self._bound.keys():
                upstream.say(self._bind(wanted[key]))
            for key in self._bound.keys() - wanted.keys():
                gone = self._bound[key]
                upstream.say(
                    unchecked(
                        commands.Exchange.Unbind,
                        destination=self._between,
                        source=self._source,
                        routing_key=gone.routing_key,
                        arguments=self._arguments(gone),
                    )
                )
            self._bound = wanted
            await upstream.drain()

    async def clean_up(self) -> None:
        """Delete there what was made for the link, which is gone for good; the upstream may be away."""
        if self._settings.keeps_resources:
            return
        name = f"Federation {self.name}"
        try:
            _, upstream = await connect_any(self._settings.uris, self._open_here, name, "the upstream")
        except (LinkLost, OSError, TimeoutError) as error:
            _log.warning("federation.not_cleaned", queue=self._queue, reason=str(error))
            return
        with suppress(LinkLost, OSError):
            await upstream.call(unchecked(commands.Queue.Delete, queue=self._queue), commands.Queue.DeleteOk)
            for suffix in "AB":
                delete = unchecked(commands.Exchange.Delete, exchange=f"{self._queue} {suffix}")
                await upstream.call(delete, commands.Exchange.DeleteOk)
        await upstream.close()

    # messages

    def _choose(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Return those that have not come too far, and were not here before; the others are done."""
        chosen: list[Parcel] = []
        done: list[Parcel] = []
        for parcel in parcels:
            before = _received_from(parcel.properties)
            ends = len(before) >= self._settings.max_hops or any(map(self._is_own, before))
            (done if ends else chosen).append(parcel)
        assert self._haul is not None
        self._haul.relay.finish(done)
        return chosen

    def _is_own(self, entry: object) -> bool:
        own = self._cluster_name, self.hub.vhost.name
        return isinstance(entry, dict) and (entry.get("cluster-name"), entry.get("vhost")) == own

    def _seal(self, parcel: Parcel) -> bytes:
        uri, cluster, vhost = self._from
        entry = {
            "uri": uri,
            "exchange": self._source,
            "redelivered": False,
            "cluster-name": cluster,
            "vhost": vhost,
        }
        raw = content.append_headers(
            parcel.properties, [(RECEIVED_FROM, [entry, *_received_from(parcel.properties)])]
        )
        return encode_publish(parcel.routing_key, parcel.body, raw, exchange=self._exchange)


def _received_from(properties: bytes) -> list[Any]:
    if RECEIVED_FROM.encode() not in properties:
        return []
    found = dict(content.decode_headers(properties)).get(RECEIVED_FROM)
    return found if isinstance(found, list) else []


def _queue_name(source: str, downstream: str, vhost: str) -> str:
    """Return the name of the queue there; a long one is cut, and told apart by a digest."""
    place = downstream if vhost == "/" else f"{vhost}:{downstream}"
    name = f"federation: {source} -> {place}"
    raw = name.encode()
    if len(raw) <= _NAME_BYTES_MAX:
        return name
    digest = blake2b(raw, digest_size=8).hexdigest()
    return f"{raw[: _NAME_BYTES_MAX - 18].decode(errors='ignore')}-{digest}"
