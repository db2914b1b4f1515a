"""Registering tells the workers on the driver where the bridge is, and nothing else changes."""

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

import spark_bridge

HERE = str(Path(spark_bridge.__file__).parent.parent)


class Session:
    """Keeps the environment there was when the source was registered."""

    def __init__(self, **context):
        self.seen = None
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
