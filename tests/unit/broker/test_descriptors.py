import os
import resource
import subprocess
import sys

import pytest

from broker.process.descriptors import connection_room, open_file_count
from config import limits


@pytest.mark.parametrize(
    ("limit", "open_count", "fitting"),
    [
        (1_024, 24, 1_000 - limits.STORE_OPEN_FILES_MAX),
        (64, 24, 20),
        (25, 24, 1),
        (24, 24, 0),
        (24, 30, 0),
        (1_000_000, 24, limits.CONNECTIONS_MAX),
    ],
)
def test_room_is_what_open_files_and_the_store_leave(limit, open_count, fitting):
    assert connection_room(limit, open_count).connections_max == fitting


def test_reason_names_the_limit_that_counts():
    assert "1024 open files leave room for 936 connections" in connection_room(1_024, 24).reason
    assert f"at most {limits.CONNECTIONS_MAX} connections" in connection_room(1_000_000, 24).reason


def test_open_files_are_counted():
    before = open_file_count()
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
    assert open_file_count() == before + 5
    for fd in fds:
        os.close(fd)


def test_soft_limit_is_raised_as_far_as_the_hard_one():
    code = "from broker.process.descriptors import *; raise_limit(); print(open_files_limit())"
    printed = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout == "300\n"
