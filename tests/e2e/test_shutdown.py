"""SIGTERM: clients are told, work in flight is finished, the exit status is 0; and one broker per storage."""

import os
import signal
import socket
import time

import httpx
import pytest
from pamqp import commands

from tests.e2e import amqp
from tests.e2e import raw_mqtt as wire
from tests.e2e.broker_process import BrokerFailed, BrokerProcess
from tests.waiting import until

pytestmark = pytest.mark.extension


def test_sigterm_tells_clients_and_exits_with_0(own_broker, raw_amqp, raw_mqtt):
    process = own_broker()
    worker = raw_amqp(process)
    worker.open_channel()
    device = raw_mqtt(process)
    old_device = raw_mqtt(process, version=wire.V311)
    process.process.terminate()
    reason = worker.close_reason()
    assert reason is not None
    assert reason[0] == 320, "CONNECTION_FORCED"
    assert device.farewell() == 0x8B, "server shutting down"
    assert old_device.farewell() is None
    assert process.wait_exit() == 0


def test_messages_confirmed_before_sigterm_are_kept(own_broker, raw_amqp, amqp_connect):
    """Published before the signal: confirmed, or not there after; never confirmed and lost."""
    process = own_broker()
    publisher = raw_amqp(process)
    publisher.open_channel(confirm=True)
    publisher.call(1, commands.Queue.Declare(0, "work", durable=True), commands.Queue.DeclareOk)
    for number in range(500):
        publisher.publish(1, "work", b"%d" % number)
    process.process.terminate()
    confirmed = 0
    while (received := publisher.read()) is not None:
        if isinstance(received.method, commands.Basic.Ack):
            confirmed = received.method.delivery_tag
        elif isinstance(received.method, commands.Connection.Close):
            publisher.send_quietly(b"")
            publisher.send_quietly(b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x33\xce")
    assert process.wait_exit() == 0
    process.start()
    channel = amqp_connect(process).channel()
    kept = [channel.basic_get("work", auto_ack=True)[2] for _ in range(confirmed)]
    assert kept == [b"%d" % number for number in range(confirmed)]


def test_sigterm_with_a_silent_client_exits_in_time(own_broker, raw_amqp):
    process = own_broker()
    silent = raw_amqp(process)
    began = time.monotonic()
    assert process.stop() == 0
    assert time.monotonic() - began < 10
    silent.drop()


def assert_owns_its_storage(broker: BrokerProcess, channel, queue: str) -> None:
    """What is published is confirmed, and SlateDB, which would tell of another owner, can write it."""
    amqp.publish(channel, queue, "kept")
    assert httpx.post(f"{broker.http_url}/api/v1/cuts", trust_env=False, timeout=20).is_success
    assert broker.alive


def test_second_broker_on_a_directory_names_the_first_and_leaves_it_alone(own_broker, amqp_connect, tmp_path):
    first = own_broker()
    channel = amqp_connect(first).channel()
    channel.confirm_delivery()
    channel.queue_declare("work", durable=True)
    second = BrokerProcess(tmp_path / "second", storage=first.storage)
    with pytest.raises(BrokerFailed, match="exited with 1"):
        second.start()
    assert f"{first.storage} is in use by process {first.pid} since " in second.log
    assert "--take-over" in second.log
    assert second.log.count("\n") == 1
    assert_owns_its_storage(first, channel, "work")
    assert "fenced" not in first.log.lower()


def test_second_broker_takes_the_directory_over_when_told_to(own_broker, amqp_connect, tmp_path):
    """The first is fenced: it confirms nothing more, says why and exits with an error."""
    first = own_broker()
    channel = amqp_connect(first).channel()
    channel.confirm_delivery()
    channel.queue_declare("work", durable=True)
    amqp.publish(channel, "work", "before")
    second = BrokerProcess(tmp_path / "second", storage=first.storage, arguments=["--take-over"])
    try:
        second.start()
        with pytest.raises(amqp.AMQPError):
            until(lambda: amqp.publish(channel, "work", "into the void"))
        assert first.wait_exit() != 0
        assert "fenced" in first.log.lower()
        heir = amqp_connect(second).channel()
        assert heir.basic_get("work", auto_ack=True)[2] == b"before"
        assert heir.basic_get("work", auto_ack=True)[2] is None
    finally:
        second.kill9()


def test_second_start_with_the_same_directory_and_ports_leaves_the_first_alone(
    own_broker, amqp_connect, tmp_path
):
    """As `make run` twice."""
    first = own_broker()
    channel = amqp_connect(first).channel()
    channel.confirm_delivery()
    channel.queue_declare("work", durable=True)
    second = BrokerProcess(tmp_path / "second", storage=first.storage)
    second.ports_wanted = dict(first.ports)
    with pytest.raises(BrokerFailed, match="exited with 1"):
        second.start()
    assert f"mqtt: port {first.mqtt_port} of 127.0.0.1 is in use" in second.log
    assert f"{first.storage} is in use by process {first.pid} since " in second.log
    assert second.log.count("\n") == 1
    assert_owns_its_storage(first, channel, "work")
    assert first.stop() == 0


def test_take_over_with_the_same_ports_waits_for_them(own_broker, amqp_connect, tmp_path):
    first = own_broker()
    channel = amqp_connect(first).channel()
    channel.confirm_delivery()
    channel.queue_declare("work", durable=True)
    amqp.publish(channel, "work", "before")
    second = BrokerProcess(tmp_path / "second", storage=first.storage, arguments=["--take-over"])
    second.ports_wanted = dict(first.ports)
    try:
        second.start()
        assert second.ports == first.ports
        assert first.wait_exit() == 1
        heir = amqp_connect(second).channel()
        assert heir.basic_get("work", auto_ack=True)[2] == b"before"
    finally:
        second.kill9()


def test_take_over_leaves_the_first_alone_when_another_program_has_a_port(own_broker, amqp_connect, tmp_path):
    first = own_broker()
    channel = amqp_connect(first).channel()
    channel.confirm_delivery()
    channel.queue_declare("work", durable=True)
    second = BrokerProcess(tmp_path / "second", storage=first.storage, arguments=["--take-over"])
    with socket.create_server(("127.0.0.1", 0)) as other:
        second.ports_wanted = {**first.ports, "amqp": other.getsockname()[1]}
        with pytest.raises(BrokerFailed, match="exited with 1"):
            second.start()
        assert f"amqp: port {second.ports_wanted['amqp']} of 127.0.0.1 is in use" in second.log
    assert_owns_its_storage(first, channel, "work")
    assert first.stop() == 0


def test_port_in_use_is_told_before_the_storage_is_touched(own_broker, tmp_path):
    running = own_broker()
    late = BrokerProcess(tmp_path / "late")
    late.ports_wanted["amqp"] = running.amqp_port
    with pytest.raises(BrokerFailed, match="exited with 1"):
        late.start()
    assert late.log == f"sluicemq: cannot listen: amqp: port {running.amqp_port} of 127.0.0.1 is in use\n"
    assert not (tmp_path / "late" / "data").exists()


def test_address_of_another_machine_is_told_in_words(tmp_path):
    late = BrokerProcess(tmp_path, {"listeners": {"mqtt": {"bind": "192.0.2.1"}}})
    with pytest.raises(BrokerFailed, match="exited with 1"):
        late.start()
    assert late.log == "sluicemq: cannot listen: mqtt: port 0 of 192.0.2.1: Cannot assign requested address\n"


def test_storage_that_cannot_be_written_is_refused_with_its_path(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("not a directory")
    process = BrokerProcess(tmp_path / "broker", storage=str(blocker / "data"))
    with pytest.raises(BrokerFailed, match="exited with"):
        process.start()
    assert process.process.returncode > 0
    assert str(blocker) in process.log
    assert "Traceback" not in process.log


def test_publishes_in_flight_at_sigterm_are_confirmed_before_the_goodbye(own_broker, raw_amqp):
    process = own_broker()
    publisher = raw_amqp(process)
    publisher.open_channel(confirm=True)
    publisher.call(1, commands.Queue.Declare(0, "work", durable=True), commands.Queue.DeclareOk)
    os.kill(process.pid, signal.SIGSTOP)
    for number in range(100):
        publisher.publish(1, "work", b"%d" % number)
    process.process.terminate()
    os.kill(process.pid, signal.SIGCONT)
    confirmed = 0
    while not isinstance((received := publisher.read()).method, commands.Connection.Close):
        if isinstance(received.method, commands.Basic.Ack):
            confirmed = received.method.delivery_tag
    publisher.drop()
    assert process.wait_exit() == 0
    assert "broker.draining" in process.log
    assert confirmed in {0, 100}, "read before the signal was seen, or not at all"


def test_second_sigterm_waits_for_no_client(own_broker, raw_amqp):
    process = own_broker()
    silent = raw_amqp(process)
    process.process.terminate()
    assert silent.close_reason() is not None
    began = time.monotonic()
    process.process.terminate()
    assert process.wait_exit() == 0
    assert "broker.hurries" in process.log or time.monotonic() - began < 1
    silent.drop()


def test_systemd_is_told_when_the_broker_serves_and_stops(own_broker, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        process = own_broker(environment=environment)
        assert manager.recv(4096).startswith(b"READY=1\nSTATUS=mqtt on port ")
        assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        assert process.stop() == 0
        last = b"WATCHDOG=1"
        while last == b"WATCHDOG=1":
            last = manager.recv(4096)
        assert last == b"STOPPING=1\nSTATUS=finishing what is open"
