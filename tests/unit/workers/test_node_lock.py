"""broker.nodes.node_lock: what the lock of a node proves to its next start."""

import os
import select
import signal
from pathlib import Path

import pytest

from broker.nodes import node_lock
from broker.nodes.node_lock import NodeLock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.lock"


def started(path: Path, member: str) -> int:
    """A supervisor that locks, forks a worker, and ends; gives the worker, which goes on."""
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        lock = NodeLock(path)
        assert lock.take()
        lock.write(member)
        worker = os.fork()
        if worker == 0:
            signal.pause()
        os.write(tells, worker.to_bytes(4, "big"))
        os._exit(0)
    os.waitpid(pid, 0)
    worker = int.from_bytes(os.read(told, 4), "big")
    os.close(told)
    os.close(tells)
    return worker


def until_gone(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    descriptor = os.pidfd_open(pid)
    try:
        assert select.select([descriptor], [], [], 10)[0]
    finally:
        os.close(descriptor)


def test_member_is_dead_once_the_last_of_its_processes_has_ended(path: Path) -> None:
    worker = started(path, "a.1")
    lock = NodeLock(path)
    assert not lock.take(), "a worker is left"
    until_gone(worker)
    assert lock.take()
    assert lock.dead_member() == "a.1"


def test_nothing_is_known_of_the_member_that_this_supervisor_had(path: Path) -> None:
    lock = NodeLock(path)
    assert lock.take()
    assert lock.dead_member() == ""
    lock.write("a.1")
    assert lock.take()
    assert lock.dead_member() == "", "its workers may still end"


def test_nothing_is_known_from_before_the_machine_was_started(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = NodeLock(path)
    assert before.take()
    before.write("a.1")
    os.close(before._file)
    (path.parent / "boot").write_text("another")
    monkeypatch.setattr(node_lock, "_BOOT_ID", path.parent / "boot")
    lock = NodeLock(path)
    assert lock.take()
    assert lock.dead_member() == ""


def test_what_is_no_file_of_this_user_is_left_alone(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("x")
    path.symlink_to(tmp_path / "elsewhere")
    lock = NodeLock(path)
    assert not lock.take()
    assert (tmp_path / "elsewhere").read_text() == "x"


def test_file_that_says_nothing_proves_nothing(path: Path) -> None:
    path.write_bytes(b"{")
    lock = NodeLock(path)
    assert lock.take()
    assert lock.dead_member() == ""
