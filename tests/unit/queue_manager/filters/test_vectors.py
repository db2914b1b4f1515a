"""The selectors of filter_vectors.json, in both dialects; null in a dialect's column: as in the other."""

import json
from pathlib import Path

import pytest

from queue_manager.filters import SelectorError, parse_selector

VECTORS = json.loads((Path(__file__).parent / "filter_vectors.json").read_text("utf-8"))
MESSAGE = VECTORS["message"]


def message(dialect):
    if dialect == "jms":
        return MESSAGE
    return {f"application-properties.{k}": v for k, v in MESSAGE.items() if not k.startswith("JMS")}


@pytest.mark.parametrize("dialect", ["jms", "amqp-sql"])
@pytest.mark.parametrize("vector", VECTORS["selectors"], ids=lambda vector: vector["expr"])
def test_vector(vector, dialect):
    expected = vector["jms"] if dialect == "jms" else vector["amqp_sql"] or vector["jms"]
    if expected == "E":
        with pytest.raises(SelectorError):
            parse_selector(vector["expr"], dialect)
        return
    is_true = parse_selector(vector["expr"], dialect).matches(message(dialect))
    is_false = parse_selector(f"NOT ({vector['expr']})", dialect).matches(message(dialect))
    assert (is_true, is_false) == (expected == "T", expected == "F"), vector.get("note", "")
