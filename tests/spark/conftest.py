"""Local Spark, where Java 17 and the extra `spark` are; elsewhere these tests say why they do not run."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.access.passwords import hashed
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users
from tests.e2e.broker_process import PROJECT, BrokerProcess

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
}
JAVA_VERSION_MIN = 17
TEST_TIMEOUT_S = 180


def why_not() -> str:
    """What is missing for Spark here; "" if nothing is."""
    for module in ("pyspark", "pyarrow"):
        try:
            __import__(module)
        except ImportError:
            return f"{module} is not installed: pip install '.[spark]'"
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    if java is None:
        return "no Java: apt-get install openjdk-17-jre-headless"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        return f"Spark needs Java {JAVA_VERSION_MIN}, not {told.splitlines()[:1]}"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    reason = why_not() if mine else ""
    for item in mine:
        item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S, method="signal"))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def environment() -> dict[str, str]:
    """What Spark's Python workers need to find this checkout."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH", "")])),
    }


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session of two cores whose tasks are tried four times."""
    from pyspark.sql import SparkSession

    import spark_bridge

    os.environ.update(environment())
    builder = SparkSession.builder.master("local[2,4]")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    spark_bridge.register(session)
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()


def users() -> Iterator[UserSettings]:
    every = ".*"
    granted = "^granted"
    for name, permissions in (
        ("guest", PermissionSettings(vhost="*", configure=every, write=every, read=every)),
        ("writer", PermissionSettings(vhost="/", write=granted)),
        ("reader", PermissionSettings(vhost="/", read=granted)),
    ):
        yield UserSettings(name=name, password=hashed(name.encode()), permissions=(permissions,))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests: queue names of their own. Besides `guest`, `writer` may write into queues
    called `granted...`, and `reader` read from them.
    """
    directory = tmp_path_factory.mktemp("broker")
    save_users(directory / "users.yaml", UsersSettings(users=tuple(users())))
    config = {
        "queues": [{"name": "small", "limits": {"max_message_size": "1KB"}}],
        "access": {"users_file": str(directory / "users.yaml"), "anonymous": "never"},
    }
    process = BrokerProcess(directory, config).start()
    yield process
    process.kill9()
