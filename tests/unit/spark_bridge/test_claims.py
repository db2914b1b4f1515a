"""What stands in the checkpoint of a batch that was claimed, and which options claims take."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bridge.claims import Taken, offset_of, ranges_of, taken_of
from spark_bridge.errors import OptionError
from spark_bridge.options import claim_settings, is_claim, read_settings


@given(st.frozensets(st.integers(0, 60)), st.integers(0, 10**13))
def test_a_batch_survives_the_checkpoint(offsets, until_ms):
    taken = Taken(offsets, until_ms)
    told = json.loads(json.dumps(offset_of("q", 7, taken)))
    assert taken_of(told) == taken


def test_offsets_lie_in_the_checkpoint_as_ranges():
    assert ranges_of({3, 1, 2, 9, 7, 8}) == [[1, 4], [7, 10]]


def test_a_queue_made_anew_has_other_messages_at_the_same_offsets():
    taken = Taken(frozenset((1, 2)), until_ms=100)
    assert taken.has(1, 100)
    assert not taken.has(1, 101)
    assert not taken.has(3, 50)


def test_claims():
    given = {"queue": "q", "Claim": "true", "group": "g", "lease": "5m", "selector": "a = 1"}
    assert is_claim(given)
    settings = claim_settings(given)
    assert (settings.queue, settings.group, settings.lease_ms, settings.selector) == (
        "q",
        "g",
        300_000,
        "a = 1",
    )
    assert not is_claim({"queue": "q"})
    assert claim_settings({"queue": "q"}).lease_ms == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"startingOffsets": "earliest"}, "option startingOffsets is for streams"),
        ({"failOnDataLoss": "false"}, "option failOnDataLoss is for streams"),
        ({"queue": "a,b"}, "option claim takes one queue"),
        ({"maxOffsetsPerTrigger": "30001"}, "option maxOffsetsPerTrigger is a whole number"),
        ({"lease": "0s"}, "option lease is a time"),
    ],
)
def test_claims_that_are_refused(options, reason):
    with pytest.raises(OptionError, match=reason):
        claim_settings({"queue": "q", "claim": "true", **options})


def test_streams_are_read_without_claims():
    with pytest.raises(OptionError, match="option claim is for streaming reads"):
        read_settings({"queue": "q", "claim": "true"}, streaming=False)
    assert read_settings({"queue": "q", "claim": "false"}, streaming=True).queues == ("q",)
