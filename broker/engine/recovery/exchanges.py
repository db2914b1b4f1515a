"""Exchanges and what is bound to them; the queues are there already."""

from __future__ import annotations

from broker.engine.log_steps import scan_records
from queue_manager.manager import QueueManager
from storage.errors import CorruptRecord
from storage.records import TO_EXCHANGE, binding, exchange
from storage.store import Store


async def restore_exchanges(store: Store, manager: QueueManager) -> None:
    """Restore every durable exchange, then every binding; what was there only for bindings that are gone
    ends.
    """
    exchanges = manager.queues.exchanges
    were_bound = []
    async for name, stored in scan_records(store, exchange):
        exchanges.restore(name, stored)
        if stored.was_bound:
            were_bound.append(name)
    async for found, arguments in scan_records(store, binding):
        source = exchanges.get(found.exchange)
        by_name = exchanges if found.kind == TO_EXCHANGE else manager.queues
        destination = by_name.get(found.destination)
        if source is None or destination is None:
            # both end together with their bindings, in one commit
            raise CorruptRecord(
                binding.name, "key", f"{found.exchange!r} or {found.destination!r} is missing"
            )
        exchanges.restore_binding(source, destination, found.routing_key, arguments)
    exchanges.end_unused(were_bound)
