"""Messages into queues, payloads into the open commit."""

from __future__ import annotations

from collections.abc import Sequence

from queue_manager.door.state import ManagerState
from queue_manager.queue import Queue
from queue_manager.tail import MESSAGE_OVERHEAD_BYTES
from storage.envelope import EnvelopeTemplate
from storage.records import payload, payload_refs


class Appending(ManagerState):
    """What ends in a queue being longer."""

    def append(
        self,
        queues: Sequence[Queue],
        template: EnvelopeTemplate | None,
        bodies: list[bytes],
        body_bytes: int,
        durable_count: int,
        now_ms: int,
    ) -> int:
        """Append one message per body to every queue; the payloads are stored once for `durable_count`.

        Gives the first message ID. `template` None: only the payloads are stored, the queues get them later.
        A template may say that payloads are shared where they are not: what is not counted is not shared.
        """
        count = len(bodies)
        first_id, put = self.message_ids.allocate(count)
        journal = self.journal
        if put is not None:
            journal.puts[put[0]] = put[1]
        if durable_count:
            keys = payload.key_run(first_id, count)
            journal.puts.update(zip(keys, bodies, strict=True))
            journal.held_bytes += body_bytes + count * MESSAGE_OVERHEAD_BYTES
            if durable_count > 1:
                for queue in queues:
                    queue.mixes_payloads = True
                value = payload_refs.encode(durable_count)
                for message_id in range(first_id, first_id + count):
                    journal.puts[payload_refs.key(message_id)] = value
        if template is not None:
            for queue in queues:
                queue.append(template, first_id, bodies, body_bytes, now_ms)
        return first_id
