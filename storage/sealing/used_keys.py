"""Which keys are in use in a storage; sealing anew what another sealed, and forgetting a key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from config import limits
from storage.batch import WriteOps
from storage.errors import StorageError
from storage.records import Encryption, encryption
from storage.sealing.sealed_blocks import number_of
from storage.sealing.sealed_store import PLAIN_KEYS, SealedStore, opened_value
from storage.sealing.unlocking import record_of

Tell = Callable[[int], None]
"""Is given how many records were seen."""

_PLAIN: Final = 0  # no number of a key


@dataclass(slots=True)
class KeyUse:
    """So much is sealed with a key; `id` is None for what is not sealed. `commits`: in a journal."""

    id: str | None
    records: int = 0
    bytes: int = 0
    commits: int = 0


class KeyUses:
    """Counts what each key of a record is in use for, without the keys themselves."""

    def __init__(self, known: Encryption | None) -> None:
        """`known`: the record of a storage; None: it has none."""
        self._mark = None if known is None else known.mark
        keys = () if known is None else known.keys
        self._uses = {key.number: KeyUse(key.id) for key in keys} | {_PLAIN: KeyUse(None)}

    def note(self, key: bytes, value: bytes) -> None:
        """Count a row as it lies there. Raises StorageError if the record does not name its key."""
        if key not in PLAIN_KEYS:
            use = self._use(value)
            use.records += 1
            use.bytes += len(value)

    def note_commit(self, block: bytes) -> None:
        """Count the body of a frame, or its beginning."""
        self._use(block).commits += 1

    def found(self) -> list[KeyUse]:
        """Return the keys in the order they were first used, and last what is not sealed, if there is any."""
        plain = self._uses[_PLAIN]
        keys = [use for number, use in sorted(self._uses.items()) if number != _PLAIN]
        return [*keys, plain] if plain.records or plain.commits or not keys else keys

    def is_used(self, key_id: str) -> bool:
        """Return whether anything was sealed with the key."""
        return any(use.id == key_id and (use.records or use.commits) for use in self._uses.values())

    def _use(self, block: bytes) -> KeyUse:
        number = None if self._mark is None else number_of(block, self._mark)
        use = self._uses.get(_PLAIN if number is None else number)
        if use is None:
            raise StorageError(f"a record is encrypted with the key of number {number}, which nothing names")
        return use


async def count_keys(store: SealedStore, tell: Tell) -> KeyUses:
    """Count what each key is in use for. Raises StorageError."""
    uses = KeyUses(await _known(store))
    seen = 0
    async for page in store.pages_as_they_lie():
        for key, value in page:
            uses.note(key, value)
        seen += len(page)
        tell(seen)
    return uses


async def seal_anew(store: SealedStore, tell: Tell) -> int:
    """Seal all that is not sealed with the newest key; gives how many records that were. Raises StorageError.

    It may be broken off at any time, and begun again.
    """
    ring = store.ring
    ops, ops_bytes, sealed_count, seen = WriteOps(), 0, 0, 0
    async for page in store.pages_as_they_lie():
        for key, value in page:
            if key in PLAIN_KEYS or number_of(value, ring.mark) == ring.newest.number:
                continue
            ops.put(key, opened_value(ring, key, value))
            ops_bytes += len(value)
            sealed_count += 1
            if ops_bytes >= limits.RESTORE_WRITE_BYTES or len(ops) >= limits.STORE_SCAN_ROWS_MAX:
                await store.write(ops)
                ops, ops_bytes = WriteOps(), 0
        seen += len(page)
        tell(seen)
    await store.write(ops)
    known = await _known(store)
    await _write_record(store, known, has_plain=False)
    return sealed_count


async def forget_key(store: SealedStore, key_id: str, tell: Tell) -> None:
    """Have the storage do without a key. Raises StorageError if it is in use."""
    known = await _known(store)
    if key_id == store.ring.newest.id:
        raise StorageError(f"key {key_id} is the one that encrypts: put another one first")
    if key_id not in [key.id for key in known.keys]:
        raise StorageError(f"the storage has no key {key_id}")
    if (await count_keys(store, tell)).is_used(key_id):
        raise StorageError(f"key {key_id} is in use. `sluicemq store keys --rewrite` changes that")
    kept = tuple([key for key in known.keys if key.id != key_id])
    await _write_record(store, known._replace(keys=kept), has_plain=bool(known.has_plain))


async def _known(store: SealedStore) -> Encryption:
    value = await store.get(encryption.key())
    assert value is not None  # written by the opening
    return encryption.decode(value)


async def _write_record(store: SealedStore, known: Encryption, *, has_plain: bool) -> None:
    record = record_of(store.ring, known.keys, has_plain=has_plain)
    await store.write(WriteOps([(encryption.key(), record)]))
