"""Deliveries that differ by more than tag and body: several 64-bit integer headers, one value a message."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

from protocols.amqp091.hot import DeliverTemplate


class StampedTemplate:
    """A DeliverTemplate with a place for a number in each of some headers.

    The template's properties must have been made by `append_headers` with `(name, 0)` for each of `names`, in
    this order, as the last headers.
    """

    __slots__ = ("body_bytes", "end", "head", "pieces")

    def __init__(self, template: DeliverTemplate, names: Sequence[str]) -> None:
        """Raises ValueError when a header is not in the template."""
        tail = template.tail
        self.head = template.head
        self.end = template.end
        self.body_bytes = template.body_bytes
        self.pieces: list[bytes] = []
        entries = [len(name).to_bytes(1, "big") + name.encode() + b"l" + bytes(8) for name in names]
        start = 0
        at = tail.rindex(b"".join(entries))
        for entry in entries:
            at += len(entry) - 8
            self.pieces.append(tail[start:at])
            at += 8
            start = at
        self.pieces.append(tail[start:])


def encode_deliver_stamped(
    output: list[bytes],
    template: StampedTemplate,
    first_tag: int,
    columns: Sequence[Sequence[int]],
    bodies: Sequence[bytes],
) -> None:
    """Append deliveries with consecutive tags; `columns` hold one number a message for each header.

    All bodies have the template's size.
    """
    count = len(bodies)
    if not count:
        return
    pieces = template.pieces
    pattern = [template.end + template.head, b""]
    for piece in pieces:
        pattern += (piece, b"")
    width = len(pattern)
    parts = pattern * count
    parts[0] = template.head
    layout = f">{count}Q"
    for at, column in enumerate((range(first_tag, first_tag + count), *columns)):
        packed = pack(layout, *column)
        parts[1 + 2 * at :: width] = [packed[index : index + 8] for index in range(0, 8 * count, 8)]
    parts[width - 1 :: width] = bodies
    parts.append(template.end)
    output.append(b"".join(parts))
