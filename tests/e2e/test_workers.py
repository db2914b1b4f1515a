"""`serve --workers N`: one broker of several processes, which start, die and end together as one."""

import json
import os
import re
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import httpx
import pytest

from storage.directory_lock import DirectoryLock
from tests.e2e import raw_mqtt as wire
from tests.e2e import workers
from tests.e2e.broker_process import BrokerFailed, BrokerProcess
from tests.waiting import until

pytestmark = pytest.mark.extension

TWO = {"workers": 2}


def run_directories(broker: BrokerProcess) -> list[Path]:
    """The directories for sockets between workers that there are."""
    return list(Path(broker.environment["TMPDIR"]).iterdir())


@pytest.fixture
def two(own_broker: Callable[..., BrokerProcess]) -> Iterator[BrokerProcess]:
    """A broker of two workers."""
    with tempfile.TemporaryDirectory(prefix="w") as directory:  # a short path
        yield own_broker(TWO, environment={"TMPDIR": directory})


def pings(client: wire.RawMqtt) -> bool:
    client.send_bytes(wire.packet(wire.PINGREQ, 0))
    return client.expect(wire.PINGRESP) is not None


def test_two_workers_accept_at_one_port_and_are_announced_as_one_broker(two, raw_mqtt):
    both = workers.pids(two)
    assert len(set(both)) == 2
    assert two.pid == two.process.pid not in both
    for pid in both:
        assert pings(workers.client_at(pid, lambda: raw_mqtt(two)))
    assert two.log.count(" serving; storage: ") == 1
    assert set(two.ports) == {"mqtt", "amqp", "http"}
    (own,) = run_directories(two)
    assert own.stat().st_mode & 0o777 == 0o700
    assert (two.directory / "data" / "shard-1" / "lock").exists()


def test_sigterm_ends_all_with_exit_status_0_and_leaves_nothing(two, raw_mqtt):
    both = workers.pids(two)
    clients = [workers.client_at(pid, lambda: raw_mqtt(two)) for pid in both]
    two.process.terminate()
    assert [client.farewell() for client in clients] == [0x8B, 0x8B]
    assert two.wait_exit() == 0
    assert not any(map(workers.is_there, both))
    assert not two.ready_file.exists()
    assert run_directories(two) == []
    assert two.log.count("broker.stopped") == 2


def test_signals_to_all_processes_at_once_are_heard_once(two, raw_amqp):
    """As a terminal sends them, and systemd."""
    silent = raw_amqp(two)
    for pid in (two.pid, *workers.pids(two)):
        os.kill(pid, signal.SIGTERM)
    assert silent.close_reason() is not None
    silent.drop()
    assert two.wait_exit() == 0
    assert "broker.hurries" not in two.log


def test_second_sigterm_waits_for_no_client_of_any_worker(two, raw_amqp):
    silent = raw_amqp(two)
    two.process.terminate()
    assert silent.close_reason() is not None
    two.process.terminate()
    assert two.wait_exit() == 0
    assert "broker.hurries" in two.log
    silent.drop()


@pytest.mark.parametrize("number", [0, 1])
def test_worker_that_was_killed_comes_back_and_clients_of_the_other_do_not_notice(two, raw_mqtt, number):
    both = workers.pids(two)
    other = workers.client_at(both[1 - number], lambda: raw_mqtt(two))
    ended = workers.client_at(both[number], lambda: raw_mqtt(two))
    os.kill(both[number], signal.SIGKILL)
    assert ended.read() is None
    assert pings(other)
    until(lambda: workers.pids(two) != both)
    again = workers.pids(two)
    assert again[1 - number] == both[1 - number]
    assert pings(workers.client_at(again[number], lambda: raw_mqtt(two)))
    assert pings(other)
    (line,) = [line for line in two.log.splitlines() if "worker.died" in line]
    assert f"worker={number}" in line
    assert "signal 9 (SIGKILL)" in line
    assert "again_in_s=0.1" in line
    assert two.stop() == 0


def test_connections_go_to_the_other_worker_while_one_is_away(two, raw_mqtt):
    both = workers.pids(two)
    os.kill(both[1], signal.SIGKILL)
    until(lambda: "worker.died" in two.log)  # its sockets are closed, too
    for _ in range(20):
        client = raw_mqtt(two, version=None)
        client.send_bytes(wire.connect())  # without an identifier: others may belong to who is away
        client.expect(wire.CONNACK)
        assert pings(client)


def test_worker_that_dies_again_and_again_is_started_after_longer_pauses(two):
    for _ in range(3):
        before = workers.pids(two)
        os.kill(before[1], signal.SIGKILL)
        until(lambda known=before: workers.pids(two) != known)  # type: ignore[misc]
    lines = [line for line in two.log.splitlines() if "worker.died" in line]
    assert [line.partition("again_in_s=")[2].split()[0] for line in lines] == ["0.1", "0.2", "0.4"]


def lines_of(broker: BrokerProcess, event: str) -> list[str]:
    return [line for line in broker.log.splitlines() if event in line]


def test_worker_that_cannot_open_its_storage_again_is_tried_until_it_can(two, raw_mqtt):
    both = workers.pids(two)
    other = workers.client_at(both[0], lambda: raw_mqtt(two))
    lock = DirectoryLock(two.directory / "data" / "shard-1")
    os.kill(two.pid, signal.SIGSTOP)  # so that it starts nobody before the storage is taken
    os.kill(both[1], signal.SIGKILL)
    until(lambda: not workers.is_there(both[1]))
    lock.take()
    os.kill(two.pid, signal.SIGCONT)
    until(lambda: len(lines_of(two, "worker.not_started")) == 3)
    lines = lines_of(two, "worker.not_started")
    assert [line.partition("again_in_s=")[2].split()[0] for line in lines] == ["0.2", "0.4", "0.8"]
    for line in lines:
        assert "shard-1 is in use by process" in line
        assert "worker=1" in line
    assert pings(other)
    assert two.alive
    lock.release()
    until(lambda: workers.pids(two) != both)
    assert pings(workers.client_at(workers.pids(two)[1], lambda: raw_mqtt(two)))
    assert pings(other)
    assert two.stop() == 0


def test_what_was_confirmed_is_there_when_its_worker_has_come_back(two, raw_mqtt):
    both = workers.pids(two)
    client = workers.client_at(both[1], lambda: raw_mqtt(two))
    client.send_bytes(wire.publish("a/b", b"kept", qos=1, retain=True))
    client.expect(wire.PUBACK)
    os.kill(both[1], signal.SIGKILL)
    until(lambda: workers.pids(two) != both)
    again = workers.client_at(workers.pids(two)[1], lambda: raw_mqtt(two))
    again.send_bytes(wire.subscribe("a/b"))
    again.expect(wire.SUBACK)
    assert again.expect(wire.PUBLISH).body.endswith(b"kept")


@pytest.mark.timed
def test_clocks_of_all_workers_are_put_forward(own_broker, raw_mqtt):
    broker = own_broker(TWO, timed=True)
    silent = [workers.client_at(pid, lambda: raw_mqtt(broker, keep_alive=2)) for pid in workers.pids(broker)]
    broker.pass_time(5)
    assert [client.farewell() for client in silent] == [0x8D, 0x8D], "keep alive timeout"


def test_workers_end_at_once_when_their_supervisor_is_killed(two):
    first, second = workers.pids(two)
    os.kill(second, signal.SIGSTOP)  # so the first does not end because the second has
    os.kill(two.pid, signal.SIGKILL)
    until(lambda: not workers.is_there(first))
    os.kill(second, signal.SIGCONT)
    until(lambda: not workers.is_there(second))
    until(lambda: run_directories(two) == [])


def test_sighup_has_every_worker_read_its_settings_anew(two):
    two.config_file.write_text(json.dumps({**two.config, "log": {"level": "debug"}}), "utf-8")
    os.kill(two.pid, signal.SIGHUP)
    until(lambda: two.log.count("config.reloaded") == 2)
    told = [line for line in two.log.splitlines() if "config.reloaded" in line]
    assert sorted(line.rpartition("worker=")[2] for line in told) == ["0", "1"]
    assert all("log.level" in line for line in told)
    assert not any("listeners" in line for line in told), "the ports that were free are no change"


def test_reload_over_http_has_every_worker_read_its_settings_anew_once(two):
    with httpx.Client(base_url=f"{two.http_url}/api/v1") as api:
        for number, level in enumerate(("debug", "info"), start=1):
            two.config_file.write_text(json.dumps({**two.config, "log": {"level": level}}), "utf-8")
            told = api.post("/configuration/reload").json()
            assert told["changed"] == ["log.level"]
            until(lambda wanted=2 * number: two.log.count("config.reloaded") == wanted)  # type: ignore[misc]
    assert two.stop() == 0
    assert two.log.count("config.reloaded") == 4


def test_systemd_is_told_by_the_supervisor_alone(own_broker, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        process = own_broker(TWO, environment=environment)
        told = manager.recv(4096)
        while told == b"WATCHDOG=1":
            told = manager.recv(4096)
        assert told.startswith(b"READY=1\nSTATUS=mqtt on port ")
        assert told.endswith(f"MAINPID={process.pid}".encode())
        assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        assert process.stop() == 0
        last = b"WATCHDOG=1"
        while last == b"WATCHDOG=1":
            last = manager.recv(4096)
        assert last == b"STOPPING=1\nSTATUS=finishing what is open"
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(4096)


def test_second_broker_is_told_once_that_the_ports_are_in_use(two, tmp_path):
    for workers_wanted in (2, 1):
        late = BrokerProcess(tmp_path / f"late-{workers_wanted}", {"workers": workers_wanted})
        late.ports_wanted = dict(two.ports)
        with pytest.raises(BrokerFailed, match="exited with 1"):
            late.start()
        assert late.log == f"sluicemq: cannot listen: mqtt: port {two.mqtt_port} of 127.0.0.1 is in use\n"
        assert not (late.directory / "data").exists()


def test_same_ports_serve_again_after_a_stop_with_clients(two, raw_mqtt):
    wanted = dict(two.ports)
    raw_mqtt(two)  # whose connection lingers, since the broker ends it
    assert two.stop() == 0
    two.ports_wanted = wanted
    assert two.start().ports == wanted


def test_storage_in_use_ends_all_workers_with_that_reason(two, tmp_path):
    late = BrokerProcess(tmp_path / "late", TWO, storage=two.storage)
    with pytest.raises(BrokerFailed, match="exited with 1"):
        late.start()
    told = re.escape(f"sluicemq: cannot start: opening: {two.storage}") + "(/shard-1)? is in use by process"
    assert re.search(told, late.log)  # of whichever worker found it first
    assert late.log.count("cannot start") == 1
    assert two.stop() == 0


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill9])
def test_fewer_workers_than_shards_that_hold_something_are_refused(own_broker, raw_mqtt, end):
    broker = own_broker({"workers": 3})
    topic = next(topic for topic in map(str, range(100)) if crc32(f"/\x1d{topic}".encode()) % 3 == 2)
    client = raw_mqtt(broker)
    client.send_bytes(wire.publish(topic, b"kept", qos=1, retain=True))  # it is kept by the last one
    client.expect(wire.PUBACK)
    client.drop()
    end(broker)
    shard = f"{broker.storage}/shard-2"
    for count in (1, 2):
        broker.config = {"workers": count}
        with pytest.raises(BrokerFailed, match="exited with 1"):
            broker.start()
        assert (
            f"sluicemq: cannot start: opening: {shard} holds queues, sessions or retained messages, which "
            f"workers: {count} would leave there: start with workers: 3 or more" in broker.log
        )
    broker.config = {"workers": 3}
    assert broker.start().stop() == 0


def test_one_worker_starts_where_other_shards_hold_nothing(two):
    assert two.stop() == 0
    two.config = {}
    assert two.start().stop() == 0


def test_unix_socket_is_served_by_the_workers_and_goes_with_the_broker(own_broker, tmp_path):
    path = tmp_path / "clients"
    broker = own_broker({**TWO, "listeners": {"mqtt": {"unix_socket": str(path)}}})
    for pid in workers.pids(broker):
        os.kill(pid, signal.SIGKILL)
    with socket.socket(socket.AF_UNIX) as client:  # waits until one has come back
        client.settimeout(20)
        client.connect(str(path))
        client.sendall(wire.connect(client_id="one"))
        assert client.recv(4)[0] == wire.CONNACK << 4
    assert broker.stop() == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("config", "arguments", "reason"),
    [
        (TWO, ["--take-over"], "--take-over works with workers: 1 only"),
        ({"workers": 0}, [], "workers: must be auto, or a number from 1 to 64"),
        ({**TWO, "cluster": {"lease": "5s"}}, [], "cluster: "),
    ],
)
def test_what_does_not_work_with_workers_is_refused(tmp_path, config, arguments, reason):
    broker = BrokerProcess(tmp_path, config, arguments=arguments)
    with pytest.raises(BrokerFailed, match="exited with"):
        broker.start()
    assert reason in broker.log


def test_temporary_directory_too_deep_for_sockets_is_refused(tmp_path):
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    broker = BrokerProcess(tmp_path / "b", TWO, environment={"TMPDIR": str(deep)})
    with pytest.raises(BrokerFailed, match="exited with 1"):
        broker.start()
    assert f"sluicemq: cannot start: {deep} is too long a path for sockets of workers" in broker.log


def test_flag_wins_over_the_file(own_broker):
    assert len(workers.pids(own_broker(arguments=["--workers", "3"]))) == 3
