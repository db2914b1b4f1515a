"""broker.http.rabbitmq.listing: order and pages over more than one part."""

import json

import pytest
from starlette.datastructures import QueryParams

from broker.http.problems import Problem
from broker.http.rabbitmq.listing import listing
from config import limits

COUNT = 3 * limits.LISTED_QUEUES_PER_STEP + 7
VIEWS = [{"name": f"q{number:04}", "depth": number * 7 % 10, "text": str(number)} for number in range(COUNT)]


async def page_of(**query):
    answer = await listing(VIEWS, dict, QueryParams(query), lambda view: view["name"])  # type: ignore[return-value]
    return json.loads(answer.body)


@pytest.mark.parametrize("is_reverse", [False, True])
async def test_a_sorted_page_is_that_of_the_whole_in_order_and_equals_keep_theirs(is_reverse):
    wanted = sorted(VIEWS, key=lambda view: view["depth"], reverse=is_reverse)  # type: ignore[return-value]
    found = []
    for number in range(1, -(-COUNT // 100) + 1):
        page = await page_of(sort="depth", sort_reverse=str(is_reverse).lower(), page=number, page_size=100)
        found += page["items"]
    assert found == wanted


async def test_a_page_that_is_sorted_and_filtered_tells_how_many_there_are_in_all():
    page = await page_of(sort="depth", name="q00", page=1, page_size=10)
    assert (page["total_count"], page["filtered_count"], page["item_count"]) == (COUNT, 100, 10)
    assert page["items"][0]["depth"] == 0


async def test_columns_are_of_the_whole_or_of_objects_in_it():
    views = [{"name": "q", "depth": None, "rates": {"in": {"last": 1}, "out": 2}}]
    query = QueryParams(columns="name,depth,rates.in.last,rates.nothing,nothing,name.x", page="1")
    page = json.loads((await listing(views, dict, query)).body)
    assert page["items"] == [{"name": "q", "depth": None, "rates": {"in": {"last": 1}}}]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"columns": "a.b," * 15_000}, "columns: at most 64"),
        ({"columns": "a" + ".b" * 15_000}, "columns: at most 8 names, one in the other"),
        ({"sort": "a" + ".b" * 15_000}, "sort: at most 8 names, one in the other"),
    ],
)
async def test_thousands_of_columns_are_refused_before_anything_is_looked_at(query, reason):
    with pytest.raises(Problem) as caught:
        await listing(VIEWS, lambda view: pytest.fail("looked at"), QueryParams(query))
    assert (caught.value.status, caught.value.reason) == (400, reason)
