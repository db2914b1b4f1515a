"""Exchanges that go with their last binding, over a restart."""

import pytest

from queue_manager.routing.exchange import ExchangeDefinition
from queue_manager.spec_records import QueueDefinition
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, open_shard, run
from tests.unit.queue_manager.managers import make_policy


def exchange(name: str) -> ExchangeDefinition:
    return ExchangeDefinition(name, "fanout", durable=True, auto_delete=True)


@pytest.mark.parametrize("is_bound_again", [False, True])
def test_exchange_that_was_bound_only_to_what_was_in_memory_goes_with_it(is_bound_again: bool) -> None:
    """As with RabbitMQ 4.3, after a stop and after a kill."""
    store, clock = MemoryStore(), FakeClock()
    shard = open_shard(store, clock)
    queues = shard.manager.queues
    before, memory, kept, unbound = [
        queues.exchanges.declare(exchange(name)) for name in ("before", "memory", "kept", "unbound")
    ]
    in_memory = queues.declare(QueueDefinition("m", durable=False, policy=make_policy()), 0)
    on_store = queues.declare(QueueDefinition("s", durable=True, policy=make_policy()), 0)
    for source, destination in ((before, memory), (memory, in_memory), (kept, in_memory), (kept, on_store)):
        queues.exchanges.bind(source, destination, "", {})
    if is_bound_again:
        queues.exchanges.bind(memory, in_memory, "other", {})
    run(shard.commit_once(everything=True))
    for _ in range(2):  # the second start finds nothing of them
        store = store.crash()
        shard = open_shard(store, clock)
        found = [
            each.name for each in shard.manager.queues.exchanges.of_vhost("/") if not each.is_predeclared
        ]
        assert sorted(found) == ["kept", "unbound"]
        run(shard.commit_once(everything=True))
