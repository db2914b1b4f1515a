"""A disk that takes nothing for another reason than being full: said within seconds, and over when it is."""

import ctypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import amqp
from tests.e2e.broker_process import BrokerFailed, BrokerProcess
from tests.waiting import until

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
PATIENCE_S = 10  # much less than a call of the store may take


def obey_permissions() -> None:
    """Have even root held to the permissions of files, once it executes the next program."""
    libc = ctypes.CDLL(None)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def few_bytes_a_file() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))


def until_logged(process: BrokerProcess, text: str) -> None:
    until(lambda: text in process.log, PATIENCE_S, told=lambda: f"{text}\n{process.log[-2000:]}")


def set_writable(directory: Path, mode: int) -> None:
    for folder, _, _ in os.walk(directory):
        os.chmod(folder, mode)


@pytest.fixture
def process(tmp_path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path, before_exec=obey_permissions)
    yield made
    set_writable(tmp_path, 0o755)
    made.kill9()


@pytest.mark.parametrize("sync", ["always", "os"])
def test_directory_that_becomes_read_only_is_told_and_nothing_is_lost(process, sync):
    process.config = {"storage": {"sync": sync}}
    process.start()
    channel = amqp.connect(process.amqp_port).channel()
    channel.queue_declare("work", durable=True)
    amqp.publish(channel, "work", "before")
    set_writable(Path(process.storage), 0o555)
    channel.basic_publish("", "work", b"during")
    until_logged(process, "cannot write to")
    assert "Permission denied" in process.log
    set_writable(Path(process.storage), 0o755)
    if sync == "always":
        until_logged(process, "storage.trouble_over")
    channel.confirm_delivery()
    amqp.publish(channel, "work", "after")
    process.restart(kill=True)
    channel = amqp.connect(process.amqp_port).channel()
    assert [channel.basic_get("work", auto_ack=True)[2] for _ in range(3)] == [b"before", b"during", b"after"]


def test_limit_of_file_sizes_set_while_running_is_told_and_waited_out(tmp_path):
    process = BrokerProcess(tmp_path, {"storage": {"sync": "os"}}).start()
    try:
        channel = amqp.connect(process.amqp_port).channel()
        channel.queue_declare("work", durable=True)
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (100_000, hard))
        channel.basic_publish("", "work", bytes(300_000))
        until_logged(process, "files may have 100000 bytes (ulimit -f)")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        channel.confirm_delivery()
        amqp.publish(channel, "work", "after")
    finally:
        process.kill9()


def test_limit_of_file_sizes_below_what_the_store_needs_is_told_at_the_start(tmp_path):
    process = BrokerProcess(tmp_path, before_exec=few_bytes_a_file)
    with pytest.raises(BrokerFailed, match=r"files may have 1000000 bytes \(ulimit -f\), \d+ are needed"):
        process.start()
    assert process.log.count("\n") == 1


def test_read_only_directory_is_told_at_the_start(process):
    Path(process.storage).mkdir()
    set_writable(Path(process.storage), 0o555)
    with pytest.raises(BrokerFailed, match=r"cannot write to .*: Permission denied"):
        process.start()
    assert process.log.count("\n") == 1
