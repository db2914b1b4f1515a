"""Queues from the configuration file, and the policy of those nobody configured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from broker import topics
from broker.engine.client import ShardClient
from config.queue_settings import QueueSettings
from config.settings import Settings
from queue_manager import address
from queue_manager.address import DEFAULT_VHOST
from queue_manager.api import BindingDefinition, GroupDefinition, QueueDeclaration, QueuePolicy, read_start
from queue_manager.errors import InvalidArgument
from queue_manager.policy import FOREVER, KEEP_UNMATCHED, REJECT

_CAPTURE: Final = {"x-capture": True}  # tells the bindings of the configuration from those of clients

_log: Final = structlog.get_logger("sluicemq.config")


def default_policy(settings: Settings) -> QueuePolicy:
    """Return the policy of queues that clients declare, or that are made because they are used."""
    limits_settings = QueueSettings(name="default").limits
    return QueuePolicy(
        visibility_timeout_ms=settings.queue_manager.visibility_timeout_ms,
        message_bytes_max=limits_settings.max_message_size_bytes,
        expires_ms=settings.queue_manager.ephemeral_expires_ms,
    )


def policy_of(settings: Settings, queue: QueueSettings) -> QueuePolicy:
    """Return the policy a `queues[]` entry asks for."""
    retries = queue.retry.max_retries
    return QueuePolicy(
        visibility_timeout_ms=settings.visibility_timeout_ms(queue),
        message_bytes_max=queue.limits.max_message_size_bytes,
        done_retention_ms=FOREVER if queue.done_retention_ms is None else queue.done_retention_ms,
        bucket_size=queue.bucket_size,
        attempts_max=retries + 1 if retries else 0,
        depth_max=queue.limits.max_depth,
        bytes_max=queue.limits.max_bytes,
        overflow=REJECT if queue.overflow == "reject-publish" else queue.overflow,
        unmatched=KEEP_UNMATCHED if queue.unmatched == "keep" else queue.unmatched,
        message_ttl_ms=queue.limits.message_ttl_ms,
        single_active=queue.single_active_consumer,
        priority_max=queue.max_priority,
        message_groups="" if queue.message_groups == "off" else queue.message_groups,
        last_value=queue.last_value,
        deduplication_window_ms=queue.deduplication_window_ms,
        dead_letter=queue.dead_letter,
        retry_initial_ms=queue.retry.initial_backoff_ms,
        retry_max_ms=queue.retry.max_backoff_ms if queue.retry.initial_backoff_ms else 0,
        retry_multiplier=queue.retry.multiplier if queue.retry.initial_backoff_ms else 0.0,
        retry_jitter=queue.retry.jitter,
        stream=queue.type == "stream",
        retention_age_ms=queue.retention.max_age_ms,
        retention_bytes=queue.retention.max_length_bytes,
        retention_count=queue.retention.max_length_messages,
        primary_group=queue.primary_group,
        group_expires_ms=queue.group_expires_ms,
    )


def declaration_of(settings: Settings, queue: QueueSettings) -> QueueDeclaration:
    """Return the queue a `queues[]` entry asks for."""
    return QueueDeclaration(
        name=queue.name,
        durable=queue.type != "ephemeral",
        policy=policy_of(settings, queue),
        topics=tuple(topic for topic in queue.topics if address.is_queue_topic(topic)),
        description=queue.description,
    )


def groups_of(queue: QueueSettings) -> list[GroupDefinition]:
    """Return the consumer groups a `queues[]` entry asks for; raises InvalidArgument naming the group."""
    wanted = []
    for group in queue.groups:
        try:
            start = read_start("start", group.start)
        except InvalidArgument as error:
            raise InvalidArgument(f"queue {queue.name!r}, group {group.name!r}: {error.reason}") from None
        wanted.append(
            GroupDefinition(name=group.name, pattern=group.pattern, selector=group.selector, start=start)
        )
    return wanted


async def capture(client: ShardClient, queue: QueueSettings) -> None:
    """Bind a queue to the ordinary topics it is to capture, and to none that it was."""
    wanted = {topics.pattern_of(topic) for topic in queue.topics if not address.is_queue_topic(topic)}
    bindings = await client.exchanges.bindings(queue=queue.name)
    for known in bindings:
        if known.arguments != _CAPTURE:
            continue
        if known.routing_key in wanted:
            wanted.discard(known.routing_key)
        else:
            await client.exchanges.unbind(known)
    for pattern in sorted(wanted):
        await client.exchanges.bind(
            BindingDefinition(
                source=topics.EXCHANGE, destination=queue.name, routing_key=pattern, arguments=_CAPTURE
            )
        )


async def declare_configured(settings: Settings, client_of: Callable[[str], ShardClient]) -> None:
    """Make the configured queues and groups and the dead-letter queues they name, and apply what was changed.

    In `/` and in each virtual host of the configuration; `client_of` gives its way to the shard. Raises
    PreconditionFailed when one exists as another type, or a group with another selector.
    """
    await _declare(settings, settings.queues, client_of(DEFAULT_VHOST))
    for vhost in settings.vhosts:
        await _declare(settings, vhost.queues, client_of(vhost.name))


async def _declare(settings: Settings, queues: Sequence[QueueSettings], client: ShardClient) -> None:
    for entry in queues:
        if await client.queues.configure(declaration_of(settings, entry)):
            _log.info("queue.redefined", queue=entry.name)
    for entry in queues:
        if entry.dead_letter and not await client.queues.exists(entry.dead_letter):
            await client.queues.declare(declaration_of(settings, QueueSettings(name=entry.dead_letter)))
    for entry in queues:
        await capture(client, entry)
    for entry in queues:
        for group in groups_of(entry):
            await client.groups.ensure(entry.name, group)
