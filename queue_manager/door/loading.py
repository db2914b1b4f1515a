"""What was read back from the store."""

from __future__ import annotations

from queue_manager.door.consuming import Consuming
from queue_manager.group import Group
from queue_manager.loads import BodiesLoad, LogLoad, PayloadLoad, ScanLoad
from queue_manager.model import Message


class Loading(Consuming):
    """Hands loads to the groups that asked."""

    def log_loaded(
        self, load: LogLoad, rows: list[Message], next_offset: int, sequence: int, now_ms: int
    ) -> None:
        """What a LogLoad read: messages, the offset after the last one seen, the sequence to go on at."""
        load.group.log_loaded(load, rows, next_offset, sequence)
        self._loaded(load.group, now_ms)

    def payloads_loaded(
        self, load: PayloadLoad, bodies: dict[int, bytes], read_count: int, now_ms: int
    ) -> None:
        """What a PayloadLoad read: those payloads of its first `read_count` messages that exist."""
        load.group.payloads_loaded(load, bodies, read_count)
        self._loaded(load.group, now_ms)

    def rows_loaded(self, load: ScanLoad, rows: list[tuple[bytes, bytes]], now_ms: int) -> None:
        """What a ScanLoad read."""
        load.then(rows, now_ms)
        self.dispatch(now_ms)

    def bodies_loaded(self, load: BodiesLoad, bodies: dict[int, bytes], read_count: int, now_ms: int) -> None:
        """What a BodiesLoad read: those payloads of its first `read_count` IDs that exist."""
        load.then(bodies, read_count, now_ms)
        self.dispatch(now_ms)

    def _loaded(self, group: Group, now_ms: int) -> None:
        waiting = group.on_loaded
        group.on_loaded = []
        for call in waiting:
            call(now_ms)
        if not group.queue.deleted:
            if group.queue.keeper is not None:
                group.queue.keeper.loaded(group, now_ms)
            self.dispatch(now_ms)
