"""Registering tells the workers on the driver where the bridge is, and nothing else changes."""

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

import spark_bridge
from spark_bridge.errors import SparkTooOld

HERE = str(Path(spark_bridge.__file__).parent.parent)


class Session:
    """Keeps the environment there was when the source was registered."""

    def __init__(self, version="4.1.0", **context):
        self.seen = None
        self.version = version
        self.dataSource = SimpleNamespace(register=self._register)
        if context:
            self.sparkContext = SimpleNamespace(**context)

    def _register(self, source):
        self.seen = dict(getattr(getattr(self, "sparkContext", None), "environment", {}))


@pytest.mark.parametrize(
    ("before", "wanted"), [({}, HERE), ({"PYTHONPATH": "/lib", "A": "b"}, f"{HERE}:/lib")]
)
def test_the_place_of_the_bridge_is_in_the_environment(before, wanted):
    session = Session(environment=dict(before))
    spark_bridge.register(session)
    assert session.seen == {**before, "PYTHONPATH": wanted}
    assert session.sparkContext.environment == before


def test_a_session_without_a_context():
    session = Session()
    spark_bridge.register(session)
    assert session.seen == {}


def test_a_spark_that_is_too_old_is_refused_with_one_line():
    session = Session(version="3.5.6")
    with pytest.raises(
        SparkTooOld, match=r"^sluicemq-spark needs PySpark 4\.1 or later, and this is 3\.5\.6"
    ):
        spark_bridge.register(session)
    assert session.seen is None
