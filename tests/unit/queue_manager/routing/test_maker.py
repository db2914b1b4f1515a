"""Making queues."""

from __future__ import annotations

from tests.unit.queue_manager.managers import NOW_MS, make_manager, make_queue


def test_queues_in_memory_have_log_ids_of_no_others_nor_of_earlier_ones() -> None:
    manager = make_manager()
    names = (("memory", False), ("durable", True), ("other", False))
    queues = [make_queue(manager, name, durable=durable) for name, durable in names]
    manager.queues.delete(queues[0], NOW_MS)
    queues.append(make_queue(manager, "memory", durable=False))
    assert len({queue.log.log_id for queue in queues}) == 4
