"""Binding, type 1b: from a durable exchange to a durable queue or exchange.

    key    01 1b ‖ TB(exchange) ‖ kind u8 ‖ TB(destination) ‖ TB(routing key) ‖ [digest, 16 bytes]
    value  arguments, a table (see `storage.values`)

Kind: 00 the destination is a queue, 01 an exchange. The digest is BLAKE2b of the value and is left out where
there are no arguments; so a key stands for one binding, and bindings are a set.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from storage import layout
from storage.encoding import KeyReader, ValueReader, encode_terminated
from storage.errors import CorruptRecord, FormatTooNew
from storage.values import encode_table, read_table

NAME: Final = "binding"
PREFIX: Final = layout.record_prefix(layout.BINDING)
TO_QUEUE: Final = 0x00
TO_EXCHANGE: Final = 0x01
DIGEST_BYTES: Final = 16


class BindingKey(NamedTuple):
    """What a binding is known by."""

    exchange: str
    kind: int
    destination: str
    routing_key: str
    digest: bytes


def digest_of(arguments: Mapping[str, object]) -> bytes:
    """What tells the arguments of a binding from others; b"" for none. Raises ValueError, see `values`."""
    return blake2b(encode_table(arguments), digest_size=DIGEST_BYTES).digest() if arguments else b""


def key(binding: BindingKey) -> bytes:
    return b"".join(
        (
            layout.queue_prefix(layout.BINDING, binding.exchange),
            bytes((binding.kind,)),
            encode_terminated(binding.destination.encode()),
            encode_terminated(binding.routing_key.encode()),
            binding.digest,
        )
    )


def parse_key(raw: bytes) -> BindingKey:
    """What the binding is known by; raises CorruptRecord, or FormatTooNew for a destination of a kind that
    this program does not know.
    """
    reader = KeyReader(NAME, raw, PREFIX)
    exchange = reader.terminated_text("exchange")
    kind = reader.u8("kind")
    if kind not in (TO_QUEUE, TO_EXCHANGE):
        raise FormatTooNew(f"{NAME}: kind {kind:#04x}")
    destination = reader.terminated_text("destination")
    routing_key = reader.terminated_text("routing_key")
    digest = reader.rest()
    if len(digest) not in (0, DIGEST_BYTES):
        raise CorruptRecord(NAME, "digest", f"{len(digest)} bytes")
    return BindingKey(exchange, kind, destination, routing_key, digest)


def encode(arguments: Mapping[str, object]) -> bytes:
    return encode_table(arguments)


def decode(value: bytes) -> dict[str, object]:
    reader = ValueReader(NAME, value)
    arguments = read_table(reader)
    reader.finish()
    return arguments
