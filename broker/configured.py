"""Queues from the configuration file, and the policy of those nobody configured."""

from __future__ import annotations

from typing import Final

import structlog

from config.queue_settings import QueueSettings
from config.settings import Settings
from queue_manager.definitions import QueueDefinition
from queue_manager.errors import PreconditionFailed
from queue_manager.manager import QueueManager
from queue_manager.policy import FOREVER, REJECT, QueuePolicy
from queue_manager.queue import Queue

_log: Final = structlog.get_logger("sluicemq.config")


def default_policy(settings: Settings) -> QueuePolicy:
    """The policy of queues that clients declare or that are made because somebody uses them."""
    limits_settings = QueueSettings(name="default").limits
    return QueuePolicy(
        visibility_timeout_ms=settings.queue_manager.visibility_timeout_ms,
        message_bytes_max=limits_settings.max_message_size_bytes,
        expires_ms=settings.queue_manager.ephemeral_expires_ms,
    )


def policy_of(settings: Settings, queue: QueueSettings) -> QueuePolicy:
    """The policy a `queues[]` entry asks for."""
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
        message_ttl_ms=queue.limits.message_ttl_ms,
        single_active=queue.single_active_consumer,
        priority_max=queue.max_priority,
        message_groups="" if queue.message_groups == "off" else queue.message_groups,
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
    )


def declare_configured(settings: Settings, manager: QueueManager, now_ms: int) -> None:
    """Make the configured queues and the dead-letter queues they name, and apply what was changed.

    Raises PreconditionFailed when one exists as another type.
    """
    for entry in settings.queues:
        durable = entry.type != "ephemeral"
        definition = QueueDefinition(
            entry.name, durable=durable, policy=policy_of(settings, entry), topics=entry.topics
        )
        existing = manager.queues.get(entry.name)
        if existing is None:
            manager.declare(definition, now_ms)
        elif existing.durable != durable or existing.policy.stream != definition.policy.stream:
            raise PreconditionFailed(f"queue {entry.name!r} exists, but not as {entry.type}")
        else:
            _apply(manager, existing, definition)
    for entry in settings.queues:
        if entry.dead_letter and entry.dead_letter not in manager.queues:
            policy = policy_of(settings, QueueSettings(name=entry.dead_letter))
            manager.declare(QueueDefinition(entry.dead_letter, durable=True, policy=policy), now_ms)


def _apply(manager: QueueManager, queue: Queue, definition: QueueDefinition) -> None:
    if queue.policy == definition.policy and queue.topics == definition.topics:
        return
    manager.redefine(queue, definition)
    _log.info("queue.redefined", queue=queue.name)
