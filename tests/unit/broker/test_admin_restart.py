"""What administration tells right after a start."""

from __future__ import annotations

from pathlib import Path

from broker.admin.views import GroupView, QueueView
from broker.app import Broker
from config.queue_settings import QueueSettings
from tests.unit.broker.test_admin import Worker, fill


async def test_counts_are_right_at_once_after_a_start(tmp_path: Path) -> None:
    settings = QueueSettings(name="q", done_retention="infinite")
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
