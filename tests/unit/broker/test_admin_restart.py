"""What administration tells and does right after a start, and what resets leave over one."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.admin.admin_views import GroupView, QueueView
from broker.amqp.topology.declarations import queue_declaration
from broker.app import Broker
from broker.configured import declaration_of
from config.queue_settings import QueueSettings
from queue_manager.errors import InvalidArgument
from queue_manager.policy import QueuePolicy
from tests.unit.broker.test_admin import Worker, bodies, fill
from tests.waiting import hold_up_task, until_so

POLICY = QueuePolicy(visibility_timeout_ms=1_000, message_bytes_max=100)


async def test_counts_are_right_at_once_after_a_start(tmp_path: Path) -> None:
    settings = QueueSettings(name="q", done_retention="infinite")  # type: ignore[call-arg]
    async with Broker(storage=str(tmp_path / "data")) as broker:
        await broker.admin.declare(settings)
        await fill(broker, "q", 10)
        worker = Worker(broker, "q")
        worker.settle("reject", 0, 1, 2, 3, 4)
        worker.settle("ack", 5, 6, 7)
        worker.close()
    calls = ("queue", "queues", "group", "groups", "declare")
    for call in calls:
        async with Broker(storage=str(tmp_path / "data")) as broker:
            admin = broker.admin
            if call == "declare":
                view: QueueView | GroupView = await admin.declare(settings)
            elif call == "queues":
                (view,) = await admin.queues()
            elif call == "groups":
                (view,) = await admin.groups("q")
            else:
                view = await (admin.queue("q") if call == "queue" else admin.group("q", ""))
            assert (view.failed, view.done, view.ready) == (5, 3, 2), call


@pytest.mark.parametrize("retention", ["infinite", "1h"])
async def test_a_reset_forward_can_be_taken_back(tmp_path: Path, retention: str) -> None:
    storage = str(tmp_path / "data")
    async with Broker(storage=storage) as broker:
        await broker.admin.declare(QueueSettings(name="q", done_retention=retention))  # type: ignore[call-arg]
        await fill(broker, "q", 10)
        worker = Worker(broker, "q", credit=6)
        worker.settle("ack", 0, 1, 3)
        worker.settle("reject", 2)
        view = await broker.admin.reset_group("q", "", to=7, force=True)
        assert (view.lag, view.done, view.failed) == (3, 6, 1)
        assert worker.sink.offsets[-3:] == [7, 8, 9]
        worker.close()
    async with Broker(storage=storage) as broker:
        view = await broker.admin.group("q", "")
        assert (view.lag, view.done, view.failed) == (3, 6, 1)
        view = await broker.admin.reset_group("q", "", to=1)
        assert (view.lag, view.done, view.failed) == (9, 1, 0)
    async with Broker(storage=storage) as broker:
        view = await broker.admin.reset_group("q", "", to="earliest")
        assert (view.lag, view.done) == (10, 0)
        assert bodies(await broker.admin.browse("q")) == [b"%d" % number for number in range(10)]


async def test_what_a_reset_passed_over_goes_when_its_retention_ends(tmp_path: Path) -> None:
    storage = str(tmp_path / "data")
    async with Broker(storage=storage) as broker:
        await broker.admin.declare(QueueSettings(name="q", done_retention="200ms"))  # type: ignore[call-arg]
        await fill(broker, "q", 4)
        await broker.admin.create_group("q", "late")
        view = await broker.admin.reset_group("q", "late", to=3)
        assert (view.lag, view.done) == (1, 3)
    async with Broker(storage=storage) as broker:

        async def is_gone() -> bool:
            await hold_up_task(0.3)  # each reset puts off what it passes over
            view = await broker.admin.reset_group("q", "late", to="earliest")
            return (view.lag, view.done) == (1, 0)

        await until_so(is_gone)


async def test_a_description_is_kept_over_a_start_whoever_gave_it(tmp_path: Path) -> None:
    storage = str(tmp_path / "data")
    async with Broker(storage=storage) as broker:
        await broker.admin.declare(QueueSettings(name="configured", description="what devices send"))
        declaration = queue_declaration(
            "declared",
            {"x-description": "who asks"},
            broker.hub.default_policy,
            durable=True,
            auto_delete=False,
        )
        await broker.hub.client.queues.declare(declaration)
        await broker.admin.declare(QueueSettings(name="plain"))
        described = QueueSettings(name="plain", description="a later one")
        await broker.hub.client.queues.configure(declaration_of(broker.settings, described))
    async with Broker(storage=storage) as broker:
        found = {view.name: view.description for view in await broker.admin.queues()}
        assert found == {
            "configured": "what devices send",
            "declared": "who asks",
            "plain": "a later one",
        }


def test_a_description_that_is_too_long_or_no_text_is_refused() -> None:
    for value in ("é" * 501, 7):
        with pytest.raises(InvalidArgument):
            queue_declaration("q", {"x-description": value}, POLICY, durable=True, auto_delete=False)
