"""An import of definitions goes on in steps: nobody waits until all of it is made."""

import asyncio
import json
from collections import Counter
from types import SimpleNamespace

import pytest

from broker.app import Broker
from broker.engine.client.exchanges import ExchangeClient
from broker.engine.client.queues import QueueClient
from broker.http.rabbitmq import definitions
from config import limits
from tests.waiting import turns

COUNT = 5 * limits.RABBITMQ_DEFINITIONS_PER_STEP + 3


class Request:
    """An administrator's import."""

    def __init__(self, site, document):
        self.site = site
        self.query = {}
        self.document = document

    def check_administrator(self):
        pass

    def part(self, name):
        return ""

    async def body(self, *required, bytes_max):
        return json.loads(json.dumps(self.document))


@pytest.fixture
async def broker():
    async with Broker(storage="memory:") as broker:
        yield broker


async def test_queues_and_bindings_are_made_in_steps_with_turns_in_between(broker, monkeypatch):
    turn = 0
    made: Counter[int] = Counter()

    def counting(method):
        def call(self, *arguments, **options):
            made[turn] += 1
            return method(self, *arguments, **options)

        return call

    monkeypatch.setattr(QueueClient, "declare", counting(QueueClient.declare))
    monkeypatch.setattr(ExchangeClient, "bind", counting(ExchangeClient.bind))

    async def count_turns():
        nonlocal turn
        while True:
            turn += 1
            await turns()

    others = asyncio.create_task(count_turns())
    names = [f"q{number}" for number in range(COUNT)]
    document = {
        "queues": [{"name": name} for name in names],
        "bindings": [{"source": "amq.fanout", "destination": name} for name in names],
    }
    site = SimpleNamespace(hub=broker._hub, client=broker._hub.client, admin=broker.admin)
    answer = await definitions.load(Request(site, document))
    others.cancel()
    assert answer.status_code == 204
    assert sum(made.values()) == 2 * COUNT
    assert max(made.values()) <= limits.RABBITMQ_DEFINITIONS_PER_STEP
    assert {view.name for view in await broker.admin.queues()} >= set(names)
