"""What all connections of one broker share: the shard, plain pub/sub, and the end of each loop turn."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from broker.clock import Clock
from broker.counters import Counters
from broker.refusals import RefusalLog
from config.settings import Settings

if TYPE_CHECKING:
    from broker.engine.shard import Shard
    from broker.mqtt.frontend import MqttFrontend
    from broker.pubsub import PubSub
    from broker.transport import Transport


class Hub:
    """Passed to every front-end; there is one per running broker, none global."""

    def __init__(
        self, settings: Settings, shard: Shard, pubsub: PubSub, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.settings = settings
        self.shard = shard
        self.pubsub = pubsub
        self.clock = clock
        self.loop = loop
        self.counters = Counters()
        self.refusals = RefusalLog()
        self.transports: dict[Transport, None] = {}
        self.flushes: dict[Transport, None] = {}
        self.held_back: list[Transport] = []
        self.mqtt_clients: dict[str, MqttFrontend] = {}
        self.browse_count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._flush_scheduled = False
        shard.commits.on_committed = self._on_committed

    def has_work(self) -> bool:
        """Whether `settle_turn` has anything to do."""
        manager = self.shard.manager
        journal = manager.journal
        return bool(
            manager.dispatchable
            or manager.appended
            or manager.dirty_groups
            or manager.loads
            or manager.timers.is_earlier
            or journal.puts
            or journal.deletes
            or journal.waiters
        )

    def settle_turn(self) -> None:
        """After something was done to the manager: deliver what can be delivered, commit what must be."""
        manager = self.shard.manager
        if manager.dispatchable:
            manager.dispatch(self.clock.now_ms())
        self.shard.wake()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside everything else; it ends with the broker."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop_tasks(self) -> None:
        """The broker stops."""
        for task in self._tasks:
            task.cancel()

    def want_flush(self, transport: Transport) -> None:
        """Write this transport's output at the end of the loop turn."""
        self.flushes[transport] = None
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        transports = list(self.flushes)
        self.flushes.clear()
        for transport in transports:
            transport.flush()
        if self.has_work():  # what clients who are gone gave back
            self.settle_turn()

    def _on_committed(self) -> None:
        if self.held_back:
            transports = self.held_back
            self.held_back = []
            for transport in transports:
                transport.store_caught_up()
