"""broker.http.values: a body comes whole, or the request is refused; what came in part is counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request

from broker.http.problems import Problem
from broker.http.values import UnfinishedBodies, body_of
from config import limits

DISCONNECT = {"type": "http.disconnect"}


def part(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def request(*events: dict[str, Any]) -> Request:
    left: Iterator[dict[str, Any]] = iter(events)

    async def receive() -> dict[str, Any]:
        return next(left)

    return Request({"type": "http", "headers": []}, receive)


async def test_body_in_parts_is_given_whole() -> None:
    assert await body_of(request(part(b"ab", more=True), part(b"c", more=False)), 3) == b"abc"


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ((part(b"ab", more=True), DISCONNECT), 400),
        ((part(b"ab", more=True), part(b"cd", more=False)), 413),
    ],
)
async def test_request_whose_body_is_not_taken_is_told_why_and_counts_no_more(
    events: tuple[dict[str, Any], ...], status: int
) -> None:
    unfinished = UnfinishedBodies()
    with pytest.raises(Problem) as refused:
        await body_of(request(*events), 3, unfinished)
    assert refused.value.status == status
    unfinished.add(limits.UNFINISHED_BYTES_MAX)  # there is room for as much as there ever was


async def test_part_that_finds_no_room_is_refused_and_a_whole_body_is_not() -> None:
    unfinished = UnfinishedBodies()
    unfinished.add(limits.UNFINISHED_BYTES_MAX)
    with pytest.raises(Problem) as refused:
        await body_of(request(part(b"a", more=True), part(b"b", more=False)), 3, unfinished)
    assert refused.value.status == 503
    assert await body_of(request(part(b"a", more=False)), 3, unfinished) == b"a"
