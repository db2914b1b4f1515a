"""Links that begin anew: after growing pauses, unless they are stopped or done."""

import asyncio
from types import SimpleNamespace

import pytest

from broker.links.supervised_link import Link, LinkLost

pytestmark = pytest.mark.asyncio


class Trial(Link):
    component = "trial"
    retry_s = 2.0

    def __init__(self, hub, outcomes):
        super().__init__(hub, "t")
        self.outcomes = outcomes

    async def serve(self):
        self.is_up()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome == "hang":
            await asyncio.Event().wait()


@pytest.fixture
def hub():
    tasks = []
    clock = SimpleNamespace(now_ms=lambda: 1, monotonic=lambda: 0.0)
    return SimpleNamespace(
        clock=clock,
        vhost=SimpleNamespace(name="/"),
        spawn=lambda work: tasks.append(asyncio.get_running_loop().create_task(work)),
        tasks=tasks,
    )


@pytest.fixture
def pauses(monkeypatch):
    slept = []
    real_sleep = asyncio.sleep

    async def sleep(seconds):
        slept.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return slept


async def test_pauses_grow_up_to_a_minute_and_what_is_done_is_told(hub, pauses):
    done: list[Link] = []
    link = Trial(hub, [*[LinkLost("away")] * 7, ValueError("a bug"), "done"])
    link.start(done.append)
    await hub.tasks[0]
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]
    assert done == [link]
    view = link.view()
    assert (view.state, view.reason, view.restarts) == ("terminated", "done", 8)


async def test_a_link_without_pauses_is_tried_once(hub, pauses):
    link = Trial(hub, [LinkLost("away")])
    link.retry_s = 0
    link.start(lambda link: None)
    await hub.tasks[0]
    assert (link.view().state, link.view().reason, pauses) == ("terminated", "away", [])


async def test_a_link_that_is_stopped_ends_and_is_not_done(hub, pauses):
    done: list[Link] = []
    link = Trial(hub, ["hang"])
    link.start(done.append)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert link.view().state == "running"
    link.stop()
    await hub.tasks[0]
    assert done == []


async def test_the_end_of_the_broker_ends_what_it_serves(hub, pauses):
    link = Trial(hub, ["hang"])
    link.start(lambda link: None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    hub.tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await hub.tasks[0]
    assert asyncio.all_tasks() == {asyncio.current_task()}
