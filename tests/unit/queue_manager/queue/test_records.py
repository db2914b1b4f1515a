"""What is entered for removal is what there is."""

from __future__ import annotations

import struct
from typing import Any

from queue_manager.queue.queue_record_types import LOG_TYPES, PLACE_TYPES
from storage.records import RECORDS
from storage.records.fields import Record

SINGLE = {"log cursor", "claim state", "group position"}  # one record for each place, deleted by its key
OF_OTHERS = {"binding", "parameter"}  # their keys only look like those of queues


def _is_of_a_queue(record: Record[..., Any, ..., Any]) -> bool:
    try:
        return record.prefix("orders").endswith(b"orders\x00")
    except struct.error:  # its keys begin with a number
        return False


def test_every_record_type_of_many_rows_per_queue_is_entered_for_removal() -> None:
    of_queues = {each.name: each.prefix("orders") for each in RECORDS.values() if _is_of_a_queue(each)}
    entered = {kind.record.prefix("orders") for kind in (*LOG_TYPES, *PLACE_TYPES)}
    missing = {name for name, prefix in of_queues.items() if prefix not in entered}
    assert missing == SINGLE | OF_OTHERS
    assert len(entered) == len(LOG_TYPES) + len(PLACE_TYPES)
