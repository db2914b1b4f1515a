"""Routes are expired where something on their way changes, and looked for only where some are kept."""

from __future__ import annotations

import pytest

from queue_manager.manager import QueueManager
from queue_manager.routing.exchange import Exchange
from storage.records import StoredBinding, StoredExchange
from tests.unit.queue_manager.managers import make_manager, make_queue

COUNT = 300


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The exchanges whose routes were expired."""
    found: list[str] = []
    expire_routes = Exchange.expire_routes

    def noted(exchange: Exchange) -> None:
        found.append(exchange.name)
        expire_routes(exchange)

    monkeypatch.setattr(Exchange, "expire_routes", noted)
    return found


def restored_circle() -> QueueManager:
    """As after a start: exchanges in a circle, each with the next but one as its alternate."""
    manager = make_manager()
    exchanges = manager.queues.exchanges
    for number in range(COUNT):
        alternate = f"e{(number + 2) % COUNT}"
        stored = StoredExchange("fanout", False, False, False, {"alternate-exchange": alternate})
        exchanges.restore(f"e{number}", stored)
    for number in range(COUNT):
        following = exchanges.find(f"e{(number + 1) % COUNT}")
        exchanges.restore_binding(exchanges.find(f"e{number}"), following, "", StoredBinding({}))
    return manager


def queues_of(manager: QueueManager, exchange: str) -> list[str]:
    route = manager.queues.exchanges.route(exchange, ("k",), dict)
    return [queue.name for queue in route.queues]


def test_a_start_with_long_ways_looks_for_no_routes(looks: list[str]) -> None:
    restored_circle()
    assert looks == []


def test_a_change_far_away_expires_what_leads_through_it(looks: list[str]) -> None:
    manager = restored_circle()
    exchanges = manager.queues.exchanges
    assert queues_of(manager, "e0") == []
    far = exchanges.find(f"e{COUNT - 1}")
    exchanges.bind(far, make_queue(manager, "end"), "", {})
    assert looks == ["e0"]  # nobody else has any
    assert queues_of(manager, "e0") == ["end"]
    assert queues_of(manager, "e7") == ["end"]
    exchanges.unbind(far, next(iter(exchanges.bindings_to(manager.queues.find("end")))))
    assert sorted(looks[1:]) == ["e0", "e7"]
    assert queues_of(manager, "e0") == queues_of(manager, "e7") == []
