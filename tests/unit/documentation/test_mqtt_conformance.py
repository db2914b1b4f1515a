"""`docs/mqtt-conformance.md`: each clause once, in order, with tests that there are."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "mqtt-conformance.md").read_text("utf-8")
DEFAULT = "tests/e2e/test_mqtt_conformance.py"


def clauses(version):
    part = PAGE.split(f"\n## MQTT {version}\n")[1].split("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| MQTT-")]


@cache
def functions(path):
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("version", "count"), [("5", 200), ("3.1.1", 100)])
def test_clauses_stand_there_once_and_in_order(version, count):
    numbers = [tuple(map(int, re.findall(r"\d+", row[0]))) for row in clauses(version)]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > count


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_each_clause_names_tests_that_there_are(version):
    for clause, _, tests in clauses(version):
        for name in re.findall(r"`([^`]+)`", tests):
            path, _, function = name.rpartition("::")
            file = DEFAULT if not path else path if "/" in path else f"tests/e2e/{path}"
            assert function in functions(file), f"{clause}: {name}"
        assert "`" in tests, clause
