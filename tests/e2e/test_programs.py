"""Programs as people have them for RabbitMQ, unmodified: other frameworks, languages and commands.

What is not installed, or cannot be fetched from its registry, is skipped and says so.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from tests.e2e.broker_process import PROJECT
from tests.waiting import until

PROGRAMS = PROJECT / "tests" / "programs"
FETCHED = PROJECT / "build" / "programs"  # what npm and Maven brought, kept between runs
AMQPLIB = "amqplib@2"
PERF_TEST = "2.22.1"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>programs</artifactId><version>1</version>
<dependencies><dependency><groupId>com.rabbitmq</groupId><artifactId>perf-test</artifactId>
<version>{PERF_TEST}</version></dependency></dependencies></project>
"""


def url(broker) -> str:
    return f"amqp://guest:guest@127.0.0.1:{broker.amqp_port}"


def run(broker, *command: str | Path, timeout_s: float = 25, **environment: str) -> str:
    """What a program prints that gets the broker's address; fails with its output when it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=PROJECT,
        env=os.environ | {"AMQP_URL": url(broker)} | environment,
        capture_output=True,
        timeout=timeout_s,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def needs(*commands: str) -> None:
    for command in commands:
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed")


def fetch(what: str, *command: str | Path, timeout_s: float = 240) -> None:
    try:
        subprocess.run([str(part) for part in command], check=True, capture_output=True, timeout=timeout_s)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{what} cannot be fetched: {(error.stderr or b'').decode()[-300:]}")


@pytest.fixture
def worker(broker):
    """Starts programs that run until the end of the test, in process groups of their own."""
    started = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=PROJECT,
            env=os.environ | {"AMQP_URL": url(broker)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(10)


def wait_for(told: Path, text: str, timeout_s: float = 20) -> None:
    def found() -> str:
        return told.read_text() if told.exists() else ""

    until(lambda: found() == text, timeout_s, told=found)


@pytest.mark.parametrize("adapter", ["asyncio", "blocking", "gevent", "select", "twisted"])
def test_each_adapter_of_pika_publishes_and_consumes(broker, name, adapter):
    printed = run(
        broker, sys.executable, "-m", "tests.programs.pika_adapters", adapter, str(broker.amqp_port), name
    )
    assert printed.split() == list("0123456789")


# Celery


@pytest.fixture
def celery(broker, monkeypatch):
    monkeypatch.setenv("AMQP_URL", url(broker))
    monkeypatch.setenv("TASK_QUEUE", f"celery-{os.getpid()}")
    from tests.programs import celery_tasks

    yield celery_tasks
    celery_tasks.app.close()


CELERY_WORKER = ("celery", "-A", "tests.programs.celery_tasks", "worker", "-c", "2", "-P", "threads")


@pytest.mark.timeout(90, method="signal")
def test_celery_runs_tasks_canvas_retries_eta_and_remote_control(celery, worker):
    from celery import chain, chord, group

    worker(*CELERY_WORKER)
    add = celery.add
    assert add.delay(1, 2).get(timeout=30) == 3
    assert chain(add.s(1, 2), add.s(3))().get(timeout=20) == 6
    assert group(add.s(i, i) for i in range(5))().get(timeout=20) == [0, 2, 4, 6, 8]
    with pytest.raises(NotImplementedError, match="chords"):  # Celery's rpc backend has none, anywhere
        chord(add.s(i, i) for i in range(3))(celery.total.s())
    began = time.monotonic()
    assert add.apply_async((5, 5), countdown=1).get(timeout=20) == 10
    assert time.monotonic() - began >= 1
    assert celery.fail_twice.delay().get(timeout=20) == 2
    with pytest.raises(ValueError, match="as asked"):
        celery.fail.delay().get(timeout=20)
    assert [list(answer.values()) for answer in celery.app.control.ping(timeout=3)] == [[{"ok": "pong"}]]
    later = add.apply_async((1, 1), countdown=30)
    celery.app.control.revoke(later.id)
    (revoked,) = celery.app.control.inspect(timeout=3).revoked().values()
    assert later.id in revoked


@pytest.mark.timeout(90, method="signal")
def test_task_of_a_killed_celery_worker_runs_again_on_another(celery, worker, tmp_path):
    told = tmp_path / "told"
    first = worker(*CELERY_WORKER)
    celery.tell_and_stay_at_first.delay(str(told))
    wait_for(told, "begun\n", 30)
    kill(first)
    worker(*CELERY_WORKER)
    wait_for(told, "begun\nbegun\ndone\n", 30)


# dramatiq


@pytest.mark.timeout(60, method="signal")
def test_dramatiq_runs_delays_and_retries(broker, worker, tmp_path, monkeypatch):
    monkeypatch.setenv("AMQP_URL", url(broker))
    from tests.programs import dramatiq_tasks

    worker("dramatiq", "tests.programs.dramatiq_tasks", "-p", "1", "-t", "1")
    plain, retried = tmp_path / "plain", tmp_path / "retried"
    dramatiq_tasks.write.send_with_options(args=(str(plain), "later"), delay=500)
    dramatiq_tasks.write.send(str(plain), "now")
    dramatiq_tasks.write_at_the_third_try.send(str(retried))
    wait_for(plain, "now\nlater\n")
    wait_for(retried, "tried\n" * 3)
    dramatiq_tasks.broker.close()


# amqp-tools


def test_amqp_tools_declare_publish_get_consume_and_delete(broker, name):
    needs("amqp-publish")
    target = f"--url={url(broker)}"
    assert run(broker, "amqp-declare-queue", target, "-q", name, "-d").strip() == name
    for body in ("first", "second", "third"):
        run(broker, "amqp-publish", target, "-r", name, "-p", "-b", body)
    assert run(broker, "amqp-get", target, "-q", name) == "first"
    assert run(broker, "amqp-consume", target, "-q", name, "-c", "2", "cat") == "secondthird"
    assert run(broker, "amqp-delete-queue", target, "-q", name).strip() == "0"


def test_tutorials_with_pika(broker):
    assert run(broker, sys.executable, PROGRAMS / "tutorials.py") == "all seven\n"


# other languages


@pytest.mark.long
@pytest.mark.timeout(300, method="signal")
def test_tutorials_in_node_with_amqplib(broker):
    needs("node", "npm")
    modules = FETCHED / "node"
    if not (modules / "node_modules" / "amqplib").exists():
        modules.mkdir(parents=True, exist_ok=True)
        fetch("amqplib", "npm", "install", "--no-audit", "--no-fund", "--prefix", modules, AMQPLIB)
    printed = run(broker, "node", PROGRAMS / "tutorials.js", NODE_PATH=str(modules / "node_modules"))
    assert printed == "all seven\n"


@pytest.fixture
def jars():
    """The class path of RabbitMQ's Java client and PerfTest."""
    needs("java", "mvn")
    directory = FETCHED / "java"
    if not list((directory / "jars").glob("perf-test-*.jar")):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "pom.xml").write_text(POM)
        copy = "org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies"
        fetch(
            "the Java client", "mvn", "-q", "-B", "-f", directory / "pom.xml", copy, "-DoutputDirectory=jars"
        )
    return f"{directory}/jars/*"


@pytest.mark.long
@pytest.mark.timeout(300, method="signal")
def test_tutorials_in_java(broker, jars):
    printed = run(broker, "java", "-cp", jars, PROGRAMS / "Tutorials.java", timeout_s=60)
    assert printed.splitlines()[-1] == "all of them"


@pytest.mark.long
@pytest.mark.timeout(300, method="signal")
@pytest.mark.parametrize(
    "options", [("-c", "100", "-q", "100", "-f", "persistent"), ("-m", "5", "-n", "5", "-A", "10")]
)
def test_perf_test_runs_to_its_end(broker, jars, name, options):
    printed = run(
        broker, "java", "-cp", jars, "com.rabbitmq.perf.PerfTest", "-h", url(broker), "-e", name, "-u", name,
        "-ad", "false", "-x", "2", "-y", "2", "-z", "3", *options, timeout_s=60,
    )  # fmt: skip
    assert "receiving rate avg" in printed


# connections that come back


@pytest.mark.timeout(60, method="signal")
async def test_robust_connection_of_aio_pika_goes_on_across_a_restart(own_broker, name):
    broker = own_broker()
    connection = await aio_pika.connect_robust(url(broker), timeout=5, reconnect_interval=0.2)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=10)
        exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await channel.declare_queue(name, durable=True)
        await queue.bind(exchange, "a.#")
        received: asyncio.Queue[Any] = asyncio.Queue()

        async def take(message):
            await message.ack()
            received.put_nowait(message.body)

        await queue.consume(take)
        await exchange.publish(aio_pika.Message(b"before", delivery_mode=2), "a.b")
        assert await received.get() == b"before"
        await channel.set_qos(prefetch_count=10)  # answered: the broker has had the acknowledgement before it
        await asyncio.to_thread(broker.restart, same_amqp_port=True)
        await asyncio.wait_for(channel.ready(), 20)
        await exchange.publish(aio_pika.Message(b"after", delivery_mode=2), "a.c")
        assert await received.get() == b"after"
