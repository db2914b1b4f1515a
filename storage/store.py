"""The ordered key-value store everything durable lies in, as the rest of the program sees it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from storage.batch import WriteOps
from storage.cuts import Cuts
from storage.errors import StorageError
from storage.store_lease import StoreLease


class Replay(NamedTuple):
    """The commits that an opening found confirmed and not yet in the database."""

    commit_count: int
    body_bytes: int
    took_ms: int


class JournalView(NamedTuple):
    """The journal before the database: its segments, how many of them hold what the database may not have
    on disk, their size, and how much waits to be handed over or to be on disk there.
    """

    segment_count: int
    segments_in_use: int
    size_bytes: int
    waiting_bytes: int


class Store(Protocol):
    """Keys and values are `bytes`; keys are ordered bytewise. One task writes at a time.

    Every method raises only what `storage.errors` defines.
    """

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None. Sees every write that was begun, durable or not."""
        ...

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys, as `get`: read together, so that it takes about as long as one of
        them.
        """
        ...

    async def scan(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows with `start <= key < end` (no upper bound if `end` is None), in key
        order.

        With `reverse` the last rows of the range come, in falling key order.
        """
        ...

    def prepare(self, ops: WriteOps) -> None:
        """Do what of writing `ops` needs no waiting, so that it overlaps with an earlier write.

        Optional; `ops` must not change afterwards. Raises StorageError.
        """
        ...

    def write_now(self, ops: WriteOps) -> bool:
        """Write within this call, if that takes no longer than handing it on would; whether it was done.

        If not, nothing has happened, and `write` does it. Raises like `write`.
        """
        ...

    async def write(self, ops: WriteOps) -> None:
        """Apply `ops` atomically; returns once it is as durable as the store is configured to make it.

        If this raises, the batch is either wholly there or wholly absent after a reopen, but nobody may be
        told that it is durable.
        """
        ...

    async def close(self) -> None:
        """Finish what was begun and let go of the database. Calling it again does nothing."""
        ...

    def check(self) -> None:
        """Raise StorageError if the store has failed for good although nothing was asked of it."""
        ...

    @property
    def cuts(self) -> Cuts | None:
        """The maker of cuts that other processes can read; None where they cannot reach the data."""
        ...

    @property
    def trouble(self) -> StorageError | None:
        """The cause that keeps the store from working in the background at the moment, if that is known."""
        ...

    @property
    def lease(self) -> StoreLease | None:
        """The lease without which nothing may be delivered or confirmed; None: there is none to keep."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether each write is a request to another machine."""
        ...

    @property
    def journal(self) -> JournalView | None:
        """The figures of the journal; None where there is none."""
        ...

    def describe(self) -> str:
        """Describe where the data lies and how durable a write is, for logs; holds no secrets."""
        ...
