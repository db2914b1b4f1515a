"""Staged epochs over AMQP: publishes to `$queue/<queue>/$stage-commit`, `-abort`, `-status`, `-forget`.

Headers `x-stage-producer` and, but for status and forget, `x-stage-epoch`. A commit's body is JSON,
`{"parts": [[part, "attempt", rows], ...]}`; an abort's may name parts so too. A status request may name one
attempt by the headers of a staged publish, to be told how many rows of it are there. See `calls` for how
they are answered.
"""

from __future__ import annotations

import json
from typing import Any

from broker.engine.answers import Answer
from broker.engine.client.epochs import EpochClient
from config import limits
from protocols.amqp091 import content
from queue_manager import stage_tags as tags
from queue_manager.api import CommittedEpoch, EpochStatus
from queue_manager.errors import InvalidArgument
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.stage_tags import EpochPart


class StagedProperties:
    """Takes apart the properties of staged publishes: the rows of an attempt have the same headers, however
    else they differ, so the last headers' meaning is kept.
    """

    __slots__ = ("_options", "_plain", "_table")

    def __init__(self) -> None:
        self._table = b""
        self._plain = b""
        self._options = PLAIN

    def find(self, raw: bytes) -> tuple[PublishOptions, bytes] | None:
        """Return the options, and the properties as consumers are to see them, if the headers are the last
        ones.
        """
        table = self._table
        if not table or table not in raw or any(content.peek_fields(raw)[1:]):
            return None
        span = content.headers_span(raw)
        if raw[span[0] : span[1]] != table:
            return None
        return self._options, content.with_headers_table(raw, span, self._plain)

    def find_all(self, raws: list[bytes]) -> tuple[PublishOptions, list[bytes]] | None:
        """Return the options as `find`, of properties that all have the last headers."""
        plain: list[bytes] = []
        for raw in raws:
            found = self.find(raw)
            if found is None:
                return None
            plain.append(found[1])
        return self._options, plain

    def take(self, raw: bytes, options: PublishOptions) -> bytes:
        """Return the properties as consumers are to see them; these headers are the last ones now."""
        span = content.headers_span(raw)
        kept = content.without_headers(raw, tags.TAG_NAMES)
        first, last = content.headers_span(kept)
        plain = kept[first:last] if last - first > 4 else b""
        if not any(content.peek_fields(raw)[1:]):
            self._table, self._plain, self._options = raw[span[0] : span[1]], plain, options
        return content.with_headers_table(raw, span, plain)


def answer(
    epochs: EpochClient, queue: str, caller: str, verb: str, headers: dict[str, Any], body: bytes
) -> Answer[dict[str, object] | None]:
    """Do what a call asks about staged rows of a queue, and say what came of it; raises QueueManagerError."""
    producer = tags.text(headers, tags.PRODUCER)
    if verb == "$stage-status":
        tag = tags.read_tag(headers) if tags.ATTEMPT in headers else None
        return epochs.status(queue, caller, producer, tag).map(_status)
    if verb == "$stage-forget":
        forgotten = epochs.forget(queue, caller, producer)
        return forgotten.map(lambda known: {"status": "forgotten" if known else "unknown"})
    epoch = tags.number(headers, tags.EPOCH)
    if verb == "$stage-abort":
        named = {(part.part, part.attempt) for part in _parts(body)} if body else None
        aborted = epochs.abort(queue, caller, producer, epoch, named)
        return aborted.map(lambda count: {"status": "aborted", "attempts": count})
    checksum = tags.text(headers, tags.CHECKSUM) if tags.CHECKSUM in headers else ""
    return epochs.commit(queue, caller, producer, epoch, _parts(body), checksum).map(_committed)


def _status(found: EpochStatus) -> dict[str, object]:
    staged = {} if found.staged_rows is None else {"staged": found.staged_rows}
    return {"status": "ok", **_last(found.last), "moving": found.is_moving, **staged}


def _committed(committed: CommittedEpoch) -> dict[str, object]:
    return {"status": "already" if committed.before else "committed", **_last(committed)}


def _last(committed: CommittedEpoch | None) -> dict[str, object]:
    if committed is None:
        return {"epoch": None}
    return {"epoch": committed.epoch, "rows": committed.row_count, "checksum": committed.checksum}


def _parts(body: bytes) -> list[EpochPart]:
    if len(body) > limits.STAGE_CONTROL_BYTES_MAX:
        raise InvalidArgument(f"a commit has at most {limits.STAGE_CONTROL_BYTES_MAX} bytes")
    wanted = 'the body is JSON: {"parts": [[part, "attempt", rows], ...]}'
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidArgument(wanted) from None
    if not isinstance(document, dict) or not isinstance(document.get("parts"), list):
        raise InvalidArgument(wanted)
    parts = []
    for element in document["parts"]:
        if not isinstance(element, list) or len(element) != 3:
            raise InvalidArgument(wanted)
        part, attempt, row_count = element
        values = {"part": part, "attempt": attempt, "rows": row_count}
        parts.append(
            EpochPart(tags.number(values, "part"), tags.text(values, "attempt"), tags.number(values, "rows"))
        )
    return parts
