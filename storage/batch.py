"""The operations of one atomic write, as plain data."""


class WriteOps:
    """Puts and deletes that become visible and durable together or not at all.

    Both lists may be appended to directly. No key may occur twice in one batch, neither among the puts nor
    as a put and a delete: stores need not check it and their answers would differ.
    """

    __slots__ = ("deletes", "is_large", "prepared", "puts")

    def __init__(self) -> None:
        self.is_large = False  # so many bytes that the event loop is not to go through them
        self.prepared: object = None  # what a store's `prepare` made of it
        self.puts: list[tuple[bytes, bytes]] = []
        self.deletes: list[bytes] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Set `key` to `value` (which may be empty)."""
        self.puts.append((key, value))

    def delete(self, key: bytes) -> None:
        """Remove `key`; removing what is not there is no error."""
        self.deletes.append(key)

    def __len__(self) -> int:
        return len(self.puts) + len(self.deletes)

    def __repr__(self) -> str:
        return f"WriteOps(puts={len(self.puts)}, deletes={len(self.deletes)})"
