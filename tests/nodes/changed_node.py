"""What is different in nodes that are tested: some limits, and the ways by which they reach each other.

Called in their processes, as `tests.e2e.copied_process` begins them.
"""

import json
import os
from collections.abc import Mapping

from broker.workers.node_side import Peers
from config import limits

VARIABLE = "TESTED_NODE"


def environment(limits_wanted: Mapping[str, float], ways: Mapping[int, int]) -> dict[str, str]:
    """What tells a node of it. `ways`: the port where the way to each port of another node begins."""
    return {VARIABLE: json.dumps({"limits": dict(limits_wanted), "ways": dict(ways)})}


def change() -> None:
    """Make the difference."""
    told = json.loads(os.environ.pop(VARIABLE))
    for name, value in told["limits"].items():
        assert hasattr(limits, name)
        setattr(limits, name, value)
    ways = {int(port): way for port, way in told["ways"].items()}
    take = Peers.take

    def take_ways(self: Peers, places: Mapping[int, tuple[str, int]]) -> None:
        take(self, {number: (host, ways.get(port, port)) for number, (host, port) in places.items()})

    Peers.take = take_ways  # type: ignore[method-assign]
