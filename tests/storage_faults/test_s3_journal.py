"""A journal on a local disk before an object store: kill -9, a start elsewhere, and doing without it."""

from collections.abc import Callable, Iterator

import pytest

from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.storage_faults.s3 import BUCKET, s3_endpoint

pytestmark = pytest.mark.timeout(120)
BODIES = [b"%d" % number for number in range(100)]


@pytest.fixture
def machine(tmp_path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers, not started, of one storage and with a disk of their own by name."""
    made: list[BrokerProcess] = []
    with s3_endpoint() as environment:

        def make(name: str, *arguments: str, journal: str = "local", disk: str = "") -> BrokerProcess:
            own = {
                "SLUICEMQ_STORAGE__JOURNAL": journal,
                "SLUICEMQ_STORAGE__JOURNAL_DIRECTORY": str(tmp_path / (disk or name) / "disk"),
            }
            process = BrokerProcess(
                tmp_path / name,
                storage=f"s3://{BUCKET}/{tmp_path.name}",
                environment=environment | own,
                arguments=arguments,
            )
            made.append(process)
            return process

        yield make
        for process in made:
            process.kill9()


def publish(broker: BrokerProcess, bodies: list[bytes]) -> None:
    """Publish, each confirmed before the next."""
    connection = amqp.connect(broker.amqp_port)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("work", durable=True)
    for body in bodies:
        amqp.publish(channel, "work", body)
    amqp.close_quietly(connection)


def bodies(broker: BrokerProcess) -> list[bytes]:
    """What waits; it is left there."""
    connection = amqp.connect(broker.amqp_port)
    channel = connection.channel()
    found = []
    while (got := channel.basic_get("work"))[0] is not None:
        found.append(got[2])
    amqp.close_quietly(connection)
    return found


def refusal(broker: BrokerProcess) -> str:
    """Why it does not start."""
    broker.spawn()
    assert broker.wait_exit(30) == 1
    return broker.log


def test_what_was_confirmed_is_there_after_a_kill_and_a_start_elsewhere_refuses(machine, tmp_path):
    first = machine("first")
    first.start()
    assert (
        f"s3://{BUCKET}/{tmp_path.name} (confirmed by the journal in {tmp_path / 'first' / 'disk'})"
        in first.log
    )
    publish(first, BODIES)
    first.restart(kill=True)
    assert bodies(first) == BODIES
    publish(first, [b"last"])
    elsewhere = machine("second", "--take-over")
    assert "is in a journal on the disk of the machine that wrote it, by process " in refusal(elsewhere)
    publish(first, [b"it was not fenced"])
    first.kill9()
    assert f"make an empty file {tmp_path / 'second' / 'disk' / 'accept-loss'}" in refusal(elsewhere)
    without = machine("third", journal="auto")
    assert "is in a journal on the disk of the machine" in refusal(without)
    first.start()
    assert bodies(first) == [*BODIES, b"last", b"it was not fenced"]


@pytest.mark.long
def test_loss_is_accepted_once(machine, tmp_path):
    first = machine("first")
    first.start()
    publish(first, BODIES)
    assert first.stop() == 0
    first.start()
    publish(first, [b"on its disk"])
    first.kill9()
    elsewhere = machine("second", "--take-over")
    disk = tmp_path / "second" / "disk"
    disk.mkdir(parents=True)
    (disk / "accept-loss").touch()
    elsewhere.start()
    assert "started all the same" in elsewhere.log
    assert bodies(elsewhere)[: len(BODIES)] == BODIES
    assert not (disk / "accept-loss").exists()


def test_a_stop_hands_over_everything_so_that_the_next_start_may_be_anywhere(machine, tmp_path):
    first, second = machine("first"), machine("second")
    first.start()
    publish(first, BODIES)
    assert first.stop() == 0
    assert not (tmp_path / "first" / "disk" / "journal").exists()
    second.start()
    assert bodies(second) == BODIES
    publish(second, [b"and here"])
    second.kill9()
    without = machine("second", journal="auto")
    without.start()
    assert bodies(without) == [*BODIES, b"and here"]
    assert not (tmp_path / "second" / "disk" / "journal").exists(), "it was handed over, and left"


@pytest.mark.long
def test_a_take_over_on_the_same_machine_has_what_the_first_confirmed(machine):
    first, heir = machine("first"), machine("heir", "--take-over", disk="first")
    first.start()
    publish(first, BODIES)
    heir.start()
    assert first.wait_exit(30) == 1
    assert "another process has opened this database" in first.log
    assert bodies(heir) == BODIES
