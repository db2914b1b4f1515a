"""Which worker of its broker a process is."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.workers.node_side import NodeSide


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Worker `number` of `count`, from 0 on.

    `run_directory` is for the Unix sockets by which workers speak with each other; nobody else's processes
    may enter it, and it goes with the broker. `unix_sockets` are those that clients connect to, by listener:
    bound before the workers were started, for all of them. `node`: what there is to know of other nodes,
    where there may be such; `count` then counts the workers of all.
    """

    number: int
    count: int
    run_directory: Path
    unix_sockets: Mapping[str, socket.socket] = field(default_factory=dict, compare=False, repr=False)
    node: NodeSide | None = field(default=None, compare=False, repr=False)

    @property
    def is_first(self) -> bool:
        """Whether it also has what there is once in a broker; see `broker.workers.worker_settings`."""
        return self.number == 0
