"""queue_manager.shard.commit: which commits the event loop is not to go through."""

import pytest

from config import limits
from queue_manager.shard.commit import Commit
from storage.records import payload_keys


@pytest.mark.parametrize(
    ("count", "body_bytes", "is_large"),
    [
        (1, 64 * limits.KIB, False),  # as quick as the way to a thread
        (100, 64 * limits.KIB, True),
        (5_000, 100, False),
        (90_000, 100, True),
    ],
)
def test_commits_of_large_bodies_and_very_large_commits_are_left_to_a_thread(count, body_bytes, is_large):
    commit = Commit()
    body = bytes(body_bytes)
    commit.puts.update((key, body) for key in payload_keys(1, count))
    commit.hold(count * body_bytes)
    assert commit.write_ops().is_large == is_large
