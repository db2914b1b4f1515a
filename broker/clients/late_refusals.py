"""Publishes that were accepted, and that a queue elsewhere refused."""

from __future__ import annotations

from broker.network.transport import Transport
from broker.vhosts.hub import Hub
from queue_manager.outcomes import REASONS


def note_refused(hub: Hub, transport: Transport, outcome: int, count: int) -> None:
    """Count and log such publishes of a client."""
    hub.counters.refuse_publishes(count)
    hub.refusals.note("", hub.clock.now_ms(), count, peer=transport.peer, reason=REASONS[outcome])
