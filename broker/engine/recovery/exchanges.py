"""Exchanges and what is bound to them; the queues are there already."""

from __future__ import annotations

from broker.engine.scan import scan_prefix
from queue_manager.manager import QueueManager
from storage.errors import CorruptRecord
from storage.records import binding, exchange
from storage.store import Store


async def restore_exchanges(store: Store, manager: QueueManager) -> None:
    """Restore every durable exchange, then every binding."""
    exchanges = manager.queues.exchanges
    async for key, value in scan_prefix(store, exchange.PREFIX):
        exchanges.restore(exchange.parse_key(key), exchange.decode(value))
    async for key, value in scan_prefix(store, binding.PREFIX):
        found = binding.parse_key(key)
        source = exchanges.get(found.exchange)
        by_name = exchanges if found.kind == binding.TO_EXCHANGE else manager.queues
        destination = by_name.get(found.destination)
        if source is None or destination is None:
            # both end together with their bindings, in one commit
            raise CorruptRecord(
                binding.NAME, "key", f"{found.exchange!r} or {found.destination!r} is missing"
            )
        exchanges.restore_binding(source, destination, found.routing_key, binding.decode(value))
