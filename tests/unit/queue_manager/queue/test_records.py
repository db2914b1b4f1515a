"""What is entered for removal is what there is."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

import storage.records
from queue_manager.queue.records import LOG_TYPES, PLACE_TYPES

SINGLE = {"log_cursor"}  # one record for each place, deleted by its key


def test_every_record_type_of_many_rows_per_queue_is_entered_for_removal() -> None:
    modules = [
        import_module(f"storage.records.{m.name}") for m in pkgutil.iter_modules(storage.records.__path__)
    ]
    of_queues = {
        module.__name__.rpartition(".")[2]: module.prefix("orders")
        for module in modules
        if hasattr(module, "prefix") and "queue_id" in inspect.signature(module.prefix).parameters
    }
    entered = {kind.prefix("orders") for kind in (*LOG_TYPES, *PLACE_TYPES)}
    missing = {name for name, prefix in of_queues.items() if prefix not in entered}
    assert missing == SINGLE
    assert len(entered) == len(LOG_TYPES) + len(PLACE_TYPES)
