"""The operations of one atomic write, as plain data."""

from collections.abc import Iterable


class WriteOps:
    """Puts and deletes that become visible and durable together or not at all.

    Both lists may be appended to directly. No key may occur twice in one batch, neither among the puts nor
    as a put and a delete: stores need not check it and their answers would differ.
    """

    __slots__ = ("deletes", "is_large", "prepared", "puts")

    def __init__(self, puts: Iterable[tuple[bytes, bytes]] = (), deletes: Iterable[bytes] = ()) -> None:
        self.is_large = False  # so many bytes that the event loop is not to go through them
        self.prepared: object = None  # what a store's `prepare` made of it
        self.puts = list(puts)
        self.deletes = list(deletes)

    def put(self, key: bytes, value: bytes) -> None:
        """Set `key` to `value` (which may be empty)."""
        self.puts.append((key, value))

    def delete(self, key: bytes) -> None:
        """Remove `key`; removing what is not there is no error."""
        self.deletes.append(key)

    def keep_prepared(self, prepared: object) -> None:
        """Keep what a store made of the operations until they are written."""
        self.prepared = prepared

    def drop_prepared(self) -> None:
        """Forget the batch made of the operations: they are written, or about to be."""
        self.prepared = None

    def __len__(self) -> int:
        return len(self.puts) + len(self.deletes)

    def __repr__(self) -> str:
        return f"WriteOps(puts={len(self.puts)}, deletes={len(self.deletes)})"
