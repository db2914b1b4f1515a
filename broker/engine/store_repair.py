"""Repairing what payloads a store keeps, while no broker has it: what `ownership` finds can be let go of."""

from __future__ import annotations

from collections.abc import Callable

from broker.engine.ownership import Ownership
from config import limits
from storage.batch import WriteOps
from storage.inspection import Inspection, inspect
from storage.records import payload, payload_refs
from storage.store import Store


async def repair(store: Store, tell: Callable[[int], None]) -> tuple[Inspection, int]:
    """Delete payloads that nothing holds, and lower counts of references to the queues that hold a message.

    Gives what problems are left, and how many were repaired. Where a record cannot be read, or belongs to
    what is not there, nothing is changed: it may be what holds a payload. `tell` is given the number of
    records seen. Raises StorageError, OSError.
    """
    ownership = Ownership()
    found = await inspect(store, verify=True, tell=tell, beside=ownership.note)
    is_sound = not found.problem_count
    ops = WriteOps()
    repaired_count = 0
    for problem in ownership.problems():  # those of payloads come last
        is_sound = is_sound and problem.key.startswith((payload.prefix(), payload_refs.prefix()))
        if not (is_sound and problem.repair):
            found.complain(problem.key, problem.what)
            continue
        for key, value in problem.repair:
            if value is None:
                ops.delete(key)
            else:
                ops.put(key, value)
        repaired_count += 1
        if len(ops) >= limits.STORE_REPAIRS_PER_WRITE_MAX:
            await store.write(ops)
            ops = WriteOps()
    if len(ops):
        await store.write(ops)
    return found, repaired_count
