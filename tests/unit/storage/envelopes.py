"""Envelopes and metadata elements made one by one: what the fast encoders are compared with."""

import struct
from collections.abc import Sequence

from storage.envelope import ENVELOPE_VERSION, EnvelopeTemplate

_pack_head = struct.Struct("<BBQq").pack
_pack_element = struct.Struct("<QI").pack


def encode_envelope(
    offset: int,
    received_at_ms: int,
    expires_at_ms: int,
    visible_at_ms: int,
    priority: int,
    topic: str,
    properties_kind: int,
    properties: bytes,
    persistent: bool,
    shared: bool,
    exchange: str = "",
) -> bytes:
    """One envelope."""
    template = EnvelopeTemplate(
        topic,
        properties_kind,
        properties,
        priority=priority,
        visible_at_ms=visible_at_ms,
        expires_at_ms=expires_at_ms,
        persistent=persistent,
        shared=shared,
        exchange=exchange,
    )
    return encode_run(template, offset, received_at_ms, 1)[0]


def encode_run(template: EnvelopeTemplate, first_offset: int, received_at_ms: int, count: int) -> list[bytes]:
    """The envelopes of `count` messages with consecutive offsets."""
    return [
        _pack_head(ENVELOPE_VERSION, template.flags, offset, received_at_ms) + template.suffix
        for offset in range(first_offset, first_offset + count)
    ]


def encode_metadata_run(first_message_id: int, envelopes: Sequence[bytes]) -> list[bytes]:
    """The elements of messages with consecutive IDs, without the array's count."""
    return [
        _pack_element(message_id, len(envelope)) + envelope
        for message_id, envelope in enumerate(envelopes, first_message_id)
    ]
