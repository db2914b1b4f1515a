"""Value of a queue specification (06): what a queue (of the layout; a consumer group of ours) is set up to
do.

    specification (06)  filters VarBytes, max_attempts u16, done_retention u32, bucket_exponent u8,
                        description Utf8, [extensions Array of (name Utf8, value VarBytes)]
    filters             empty: every message; else 01, topic filters Array of Utf8, selector Utf8

Any filter matches the topic (none: any topic), and the selector holds (empty: always). 0 attempts are
unlimited; done retention is in seconds, 0 keeps done messages for ever. Extensions are in rising order of
names; names that a reader does not know are kept. `queue_manager.spec_records` has those there are.

A group of the whole queue has no topic filters; one with the pattern `p` has `$queue/<queue>/p` and `p`, for
what came by another topic or routing key. (A topic that is the queue's own name is an empty routing key,
which only `#` matches.) Earlier versions have the bindings of a queue in the filters of its own record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from storage import layout
from storage.encoding import Reader, encode_array, encode_utf8, encode_var_bytes, pack_u16, pack_u32
from storage.errors import CorruptRecord, FormatTooNew
from storage.records.fields import Codec

FILTER_FORMAT: Final = 0x01


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """The settings of one queue.

    A message is taken if any of `topic_filters` matches its topic (no filter: any topic) and the `selector`
    holds (empty: none). `max_attempts` 0 is unlimited, `done_retention_s` 0 keeps done messages for ever.
    `extensions` has what the fixed fields lack, by name.
    """

    topic_filters: tuple[str, ...] = ()
    selector: str = ""
    max_attempts: int = 0
    done_retention_s: int = 0
    bucket_exponent: int = layout.BUCKET_EXPONENT_DEFAULT
    description: str = ""
    extensions: Mapping[str, bytes] = field(default_factory=dict)


def _encode(spec: QueueSpec) -> bytes:
    layout.check_bucket_exponent(spec.bucket_exponent)
    parts = [
        encode_var_bytes(_encode_filters(spec.topic_filters, spec.selector)),
        pack_u16(spec.max_attempts),
        pack_u32(spec.done_retention_s),
        bytes((spec.bucket_exponent,)),
        encode_utf8(spec.description),
    ]
    if spec.extensions:
        named = sorted(spec.extensions.items())
        parts.append(encode_array([encode_utf8(name) + encode_var_bytes(value) for name, value in named]))
    return b"".join(parts)


def _read(reader: Reader) -> QueueSpec:
    """Read a specification. Filters of a later format are refused: such a queue must not take messages."""
    topic_filters, selector = _decode_filters(reader.record_type, reader.var_bytes("filters"))
    max_attempts = reader.u16("max_attempts")
    done_retention_s = reader.u32("done_retention")
    bucket_exponent = reader.u8("bucket_exponent")
    if bucket_exponent > layout.BUCKET_EXPONENT_MAX:
        raise CorruptRecord(reader.record_type, "bucket_exponent", str(bucket_exponent))
    description = reader.utf8("description")
    extensions = {} if reader.at_end() else _decode_extensions(reader)
    return QueueSpec(
        topic_filters, selector, max_attempts, done_retention_s, bucket_exponent, description, extensions
    )


def _encode_filters(topic_filters: tuple[str, ...], selector: str) -> bytes:
    if not topic_filters and not selector:
        return b""
    topics = encode_array([encode_utf8(topic_filter) for topic_filter in topic_filters])
    return bytes((FILTER_FORMAT,)) + topics + encode_utf8(selector)


def _decode_filters(record_type: str, raw: bytes) -> tuple[tuple[str, ...], str]:
    if not raw:
        return (), ""
    reader = Reader(record_type, raw)
    filter_format = reader.u8("filter format")
    if filter_format > FILTER_FORMAT:
        raise FormatTooNew(
            f"{record_type}: filter format {filter_format}; this program reads {FILTER_FORMAT}"
        )
    if filter_format != FILTER_FORMAT:
        raise CorruptRecord(record_type, "filter format", str(filter_format))
    topic_filters = tuple([reader.utf8("topic filter") for _ in range(reader.u16("topic filters"))])
    selector = reader.utf8("selector")
    reader.finish()
    return topic_filters, selector


def _decode_extensions(reader: Reader) -> dict[str, bytes]:
    extensions: dict[str, bytes] = {}
    for _ in range(reader.u16("extensions")):
        name = reader.utf8("extension name")
        if name in extensions:
            raise CorruptRecord(reader.record_type, "extension name", f"{name!r} twice")
        extensions[name] = reader.var_bytes("extension value")
    return extensions


SPEC: Final = Codec(_encode, _read)
