"""The worker of a shard that is about to be handed to a node: forked before, and told, or ended."""

import subprocess
import sys

NODE = """
import asyncio, time
from pathlib import Path
from broker.process.service_manager import ServiceManager
from broker.workers.node_side import Epoch, NodeDeadline, NodeSide, Peers
from broker.workers.supervised import AWAIT, CLOSE, OPEN, PEERS, RELOADED
from broker.workers.supervisor import KEEPER, Node, Supervisor
from broker.workers.worker_place import WorkerPlace

def say(*words):
    print(*words, flush=True)

def place_of(number, count, epoch):
    side = NodeSide("a", "127.0.0.1", 1, Epoch(epoch), b"", NodeDeadline(), Peers())
    return WorkerPlace(number, count, Path("/nowhere"), {}, side)

def work(place, outside):
    return asyncio.run(waiting(place, outside))

async def waiting(place, outside):
    stopped = asyncio.Event()
    outside.on_stop(stopped.set)
    say("begun", place.number)
    begun = asyncio.ensure_future(place.node.epoch.begun())
    stop = asyncio.ensure_future(stopped.wait())
    await asyncio.wait((begun, stop), return_when=asyncio.FIRST_COMPLETED)
    if begun.done():
        say("owned", place.number, place.node.epoch.number)
        outside.serving({}, "")
        await stop
    say("ended", place.number)
    return 0

def keep(place, outside):
    asyncio.run(told(outside))
    return 0

async def told(outside):
    heard = []
    outside.on_told(lambda what: heard.append(dict(what)))
    outside.on_stop(lambda: None)
    outside.tell({"report": PEERS, "places": {}, "view": {}})
    for what in STEPS:
        outside.tell(what)
        await asyncio.sleep(0.5)
    say("heard", heard)


Supervisor((), work, lambda serving: say("serving", len(serving)), lambda: None, lambda: None,
           ServiceManager(), say, Node(keep, place_of(KEEPER, 0, 0), place_of)).run()
"""


def told_by_a_node(*steps: str) -> list[str]:
    """What processes of a node say whose keeper wants these things, one after the other, and then dies."""
    program = NODE.replace("STEPS", f"({', '.join(steps)},)")
    running = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        said = []
        for line in running.stdout:
            said.append(line.strip())
            if line.startswith("heard"):
                break
        return said
    finally:
        running.kill()
        running.wait()


AWAIT_1 = '{"report": AWAIT, "shards": [1], "count": 2}'
AWAIT_NONE = '{"report": AWAIT, "shards": [], "count": 2}'
OPEN_1 = '{"report": OPEN, "shard": 1, "count": 2, "epoch": 7}'
RELOAD = '{"report": RELOADED}'
CLOSE_1 = '{"report": CLOSE, "shard": 1, "kill": False}'


def test_worker_of_a_shard_that_is_handed_over_begins_before_and_goes_on_once_it_is_owned():
    said = told_by_a_node(AWAIT_1, OPEN_1, AWAIT_NONE, CLOSE_1)
    assert said == [
        "begun 1", "owned 1 7", "serving 1", "ended 1", "heard [{'opened': 1}, {'closed': 1}]"
    ]  # fmt: skip


def test_worker_of_a_shard_that_is_not_handed_over_after_all_ends_and_nobody_takes_that_for_a_close():
    assert told_by_a_node(AWAIT_1, AWAIT_NONE) == ["begun 1", "ended 1", "heard []"]


def test_worker_that_waits_keeps_nobody_from_serving():
    said = told_by_a_node('{"report": AWAIT, "shards": [0], "count": 2}', OPEN_1)
    assert said == ["begun 0", "begun 1", "owned 1 7", "serving 1", "heard [{'opened': 1}]"]


def test_shard_that_is_given_to_the_node_after_a_worker_had_been_ended_gets_another_one():
    said = told_by_a_node(AWAIT_1, AWAIT_NONE, OPEN_1)
    assert said == ["begun 1", "ended 1", "begun 1", "owned 1 7", "serving 1", "heard [{'opened': 1}]"]


def test_worker_that_waits_while_settings_are_read_anew_ends_and_the_shard_gets_one_that_has_read_them():
    said = told_by_a_node(AWAIT_1, RELOAD, OPEN_1)
    assert said == ["begun 1", "ended 1", "begun 1", "owned 1 7", "serving 1", "heard [{'opened': 1}]"]
