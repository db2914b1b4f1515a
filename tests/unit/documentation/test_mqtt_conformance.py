"""`docs/mqtt-conformance.md`: each clause, in order, with tests that there are."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "mqtt-conformance.md").read_text("utf-8")
DEFAULT = "tests/e2e/test_mqtt_conformance.py"


def clauses_of_tests(version: str) -> dict[str, list[str]]:
    section = PAGE.split(f"\n## MQTT {version}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^- `(.+)`: (.+)$", section, re.MULTILINE)
    assert len(rows) == len({name for name, _ in rows})
    return {name: clauses.split(", ") for name, clauses in rows}


def number(clause: str) -> tuple[int, ...]:
    assert re.fullmatch(r"[\d.]+-\d+", clause)
    return tuple(map(int, re.findall(r"\d+", clause)))


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("version", "count"), [("5", 229), ("3.1.1", 127)])
def test_all_clauses_stand_there(version: str, count: int) -> None:
    told = {clause for clauses in clauses_of_tests(version).values() for clause in clauses}
    assert len(told) == count


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_clauses_of_a_test_stand_once_and_in_order(version: str) -> None:
    for name, clauses in clauses_of_tests(version).items():
        numbers = [number(clause) for clause in clauses]
        assert numbers == sorted(set(numbers)), name


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_tests_are_there(version: str) -> None:
    for name in clauses_of_tests(version):
        path, _, function = name.rpartition("::")
        file = DEFAULT if not path else path if "/" in path else f"tests/e2e/{path}"
        assert function in functions(file), name
