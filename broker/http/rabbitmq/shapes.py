"""The contents of the broker, in the form of RabbitMQ's management API."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from broker.connections.connection_views import NODE, ChannelView, ConnectionView, ConsumerView
from broker.http.totals import QueueTotals, Rates
from queue_manager.api import BindingDefinition, ExchangeView, QueueView

USER: Final = "sluicemq"

STATS: Final = ("publish", "deliver_get", "deliver", "ack", "redeliver")


def queue(view: QueueView, vhost: str, rates: Rates) -> dict[str, Any]:
    """Return the form of one queue."""
    ready, unacknowledged = view.ready + view.delayed, view.in_flight
    capacity = int(bool(view.consumers) and not view.ready)  # whether consumers take at once what comes
    kind = queue_type(view)
    members = {} if kind == "classic" else {"leader": NODE, "members": [NODE], "online": [NODE]}
    return {
        "name": view.name,
        "vhost": vhost,
        "type": kind,
        "durable": view.durable,
        "auto_delete": view.auto_delete,
        "exclusive": view.exclusive,
        "arguments": arguments_of(view),
        "node": NODE,
        **members,
        "state": "running",
        **policies(view),
        "consumers": view.consumers,
        "consumer_capacity": capacity,
        "consumer_utilisation": capacity,
        "exclusive_consumer_tag": None,
        "single_active_consumer_tag": None,
        "memory": view.memory_bytes,
        **message_counts(ready, unacknowledged, rates),
        "messages_persistent": ready + unacknowledged if view.durable else 0,
        "messages_ram": 0 if view.durable else ready + unacknowledged,
        "message_bytes": view.retained_bytes or view.memory_bytes,
        "message_bytes_ready": view.retained_bytes or view.memory_bytes,
        "message_bytes_unacknowledged": 0,
        "head_message_timestamp": None,
        "recoverable_slaves": None,
        "message_stats": message_stats(view, rates),
    }


def queue_type(view: QueueView) -> str:
    """Return the type of a queue."""
    if view.type == "stream":
        return "stream"
    return "quorum" if view.arguments.get("x-queue-type") == "quorum" else "classic"


def policies(view: QueueView) -> dict[str, Any]:
    """Return which policies hold for a queue."""
    return {
        "policy": view.policies.policy or None,
        "operator_policy": view.policies.operator_policy or None,
        "effective_policy_definition": dict(view.policies.definition),
    }


def message_counts(ready: int, unacknowledged: int, rates: Rates) -> dict[str, Any]:
    """Return how many messages there are, and how fast that changes."""
    return {
        "messages": ready + unacknowledged,
        "messages_details": {"rate": rates.published - rates.settled},
        "messages_ready": ready,
        "messages_ready_details": {"rate": rates.published - rates.delivered},
        "messages_unacknowledged": unacknowledged,
        "messages_unacknowledged_details": {"rate": rates.delivered - rates.settled},
    }


def arguments_of(view: QueueView) -> dict[str, Any]:
    """Return the arguments a queue was declared with, that it can be declared so again."""
    arguments = {name: value for name, value in view.arguments.items() if name != "durable"}
    if view.type == "stream":
        arguments["x-queue-type"] = "stream"
    return arguments


def message_stats(of: QueueView | QueueTotals, rates: Rates) -> dict[str, Any]:
    """Return the counts of a queue, or of several, with their rates."""
    counts = (of.published, of.delivered, of.delivered, of.settled, of.redelivered)
    speeds = (rates.published, rates.delivered, rates.delivered, rates.settled, rates.redelivered)
    stats: dict[str, Any] = {}
    for name, count, speed in zip(STATS, counts, speeds, strict=True):
        stats[name] = count
        stats[f"{name}_details"] = {"rate": round(speed, 3)}
    return stats


def exchange(view: ExchangeView, vhost: str) -> dict[str, Any]:
    """Return the form of one exchange."""
    return {
        "name": view.name,
        "vhost": vhost,
        "type": view.type,
        "durable": view.durable,
        "auto_delete": view.auto_delete,
        "internal": view.internal,
        "arguments": dict(view.arguments),
        "policy": view.policies.policy or None,
        "user_who_performed_action": USER,
    }


def binding(definition: BindingDefinition, vhost: str) -> dict[str, Any]:
    """Return the form of one binding."""
    return {
        "source": definition.source,
        "vhost": vhost,
        "destination": definition.destination,
        "destination_type": definition.destination_type,
        "routing_key": definition.routing_key,
        "arguments": dict(definition.arguments),
        "properties_key": properties_key(definition),
    }


def properties_key(definition: BindingDefinition) -> str:
    """Return what tells bindings between the same two apart, fit for a path."""
    if not definition.arguments:
        return definition.routing_key or "~"
    text = json.dumps(dict(definition.arguments), sort_keys=True, default=str)
    return f"{definition.routing_key}~{hashlib.sha256(text.encode()).hexdigest()[:7]}"


def connection(view: ConnectionView) -> dict[str, Any]:
    """Return the form of one connection."""
    told = view.description
    host, _, port = view.peer.rpartition(":")
    local_host, _, local_port = view.local.rpartition(":")
    return {
        "name": view.name,
        "node": NODE,
        "vhost": told.vhost,
        "user": told.user,
        "user_who_performed_action": told.user,
        "protocol": told.protocol,
        "auth_mechanism": "PLAIN",
        "state": "blocked" if view.blocked else "running" if told.vhost else "starting",
        "type": "network",
        "ssl": False,
        "host": local_host,
        "port": _number(local_port),
        "peer_host": host,
        "peer_port": _number(port),
        "channels": len(told.channels),
        "connected_at": view.connected_at_ms,
        "client_properties": {"client_id": told.client_id, **told.client},
        "send_pend": view.buffered_bytes,
    }


def channel(view: ConnectionView, of: ChannelView) -> dict[str, Any]:
    """Return the form of one channel."""
    told = view.description
    return {
        "name": f"{view.name} ({of.number})",
        "number": of.number,
        "node": NODE,
        "vhost": told.vhost,
        "user": told.user,
        "user_who_performed_action": told.user,
        "connection_details": _connection_details(view),
        "state": "running",
        "confirm": of.confirms,
        "transactional": of.transactional,
        "consumer_count": len(of.consumers),
        "prefetch_count": of.prefetch,
        "global_prefetch_count": of.prefetch_shared,
        "messages_unacknowledged": of.unsettled,
        "messages_uncommitted": 0,
        "messages_unconfirmed": 0,
        "acks_uncommitted": 0,
    }


def consumer(view: ConnectionView, number: int, of: ConsumerView) -> dict[str, Any]:
    """Return the form of one consumer."""
    return {
        "queue": {"name": of.queue, "vhost": view.description.vhost},
        "consumer_tag": of.tag,
        "ack_required": not of.no_ack,
        "exclusive": of.exclusive,
        "active": True,
        "activity_status": "up",
        "prefetch_count": of.prefetch,
        "arguments": {"x-consumer-group": of.group} if of.group else {},
        "channel_details": {
            "name": f"{view.name} ({number})",
            "number": number,
            "node": NODE,
            "connection_name": view.name,
            "peer_host": view.peer.rpartition(":")[0],
            "peer_port": _number(view.peer.rpartition(":")[2]),
            "user": view.description.user,
        },
    }


def consumers_of(view: ConnectionView) -> list[tuple[int, ConsumerView]]:
    """Return the consumers of a client, each with the number of its channel; 1 where there are no
    channels.
    """
    told = view.description
    found = [(1, each) for each in told.consumers]
    return found + [(channel.number, each) for channel in told.channels for each in channel.consumers]


def _connection_details(view: ConnectionView) -> dict[str, Any]:
    host, _, port = view.peer.rpartition(":")
    return {"name": view.name, "peer_host": host, "peer_port": _number(port)}


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
