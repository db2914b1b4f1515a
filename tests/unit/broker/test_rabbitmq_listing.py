"""broker.http.rabbitmq.listing: order and pages over more than one part."""

import json

import pytest
from starlette.datastructures import QueryParams

from broker.http.rabbitmq.listing import listing
from config import limits

COUNT = 3 * limits.LISTED_QUEUES_PER_STEP + 7
VIEWS = [{"name": f"q{number:04}", "depth": number * 7 % 10, "text": str(number)} for number in range(COUNT)]


async def page_of(**query):
    answer = await listing(VIEWS, dict, QueryParams(query), lambda view: view["name"])
    return json.loads(answer.body)


@pytest.mark.parametrize("is_reverse", [False, True])
async def test_a_sorted_page_is_that_of_the_whole_in_order_and_equals_keep_theirs(is_reverse):
    wanted = sorted(VIEWS, key=lambda view: view["depth"], reverse=is_reverse)
    found = []
    for number in range(1, -(-COUNT // 100) + 1):
        page = await page_of(sort="depth", sort_reverse=str(is_reverse).lower(), page=number, page_size=100)
        found += page["items"]
    assert found == wanted


async def test_a_page_that_is_sorted_and_filtered_tells_how_many_there_are_in_all():
    page = await page_of(sort="depth", name="q00", page=1, page_size=10)
    assert (page["total_count"], page["filtered_count"], page["item_count"]) == (COUNT, 100, 10)
    assert page["items"][0]["depth"] == 0
