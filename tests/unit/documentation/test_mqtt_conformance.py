"""`docs/mqtt-conformance.md`: each clause once, in order, with tests that there are."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "mqtt-conformance.md").read_text("utf-8")
DEFAULT = "tests/e2e/test_mqtt_conformance.py"


def section(version):
    return PAGE.split(f"\n## MQTT {version}\n")[1].split("\n## ")[0]


def clauses(version):
    """The clauses with what they say and their tests; of 3.1.1 also those told as of MQTT 5."""
    rows = []
    for told, tests in re.findall(r"^- (MQTT-.*?): (`.*)$", section(version), re.MULTILINE):
        rows += [[clause, what, tests] for clause, what in re.findall(r"(MQTT-\S+) (.+?)(?=; MQTT-|$)", told)]
    if version == "3.1.1":
        known = {row[0]: row[1:] for row in clauses("5")}
        rows += [[f"MQTT-{clause}", *known[f"MQTT-{of_5}"]] for clause, of_5 in told_as_of_5()]
    return sorted(rows, key=lambda row: number(row[0]))


def told_as_of_5():
    same, others = re.findall(
        r"^Of (?:the same number|another number \(3.1.1=5\)): (.*?)\n\n",
        section("3.1.1"),
        re.MULTILINE | re.DOTALL,
    )
    pairs = [(clause, clause) for clause in re.findall(r"[\d.]+-\d+", same)]
    return pairs + re.findall(r"([\d.]+-\d+)=([\d.]+-\d+)", others)


def number(clause):
    return tuple(map(int, re.findall(r"\d+", clause)))


@cache
def functions(path):
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("version", "count"), [("5", 200), ("3.1.1", 100)])
def test_clauses_stand_there_once(version, count):
    numbers = [number(row[0]) for row in clauses(version)]
    assert len(numbers) == len(set(numbers))
    assert len(numbers) > count


@pytest.mark.parametrize(
    "clauses_told",
    [
        re.findall(r"MQTT-([\d.]+-\d+)", section("5")),
        re.findall(r"MQTT-([\d.]+-\d+)", section("3.1.1")),
        [clause for clause, of_5 in told_as_of_5() if clause == of_5],
        [clause for clause, of_5 in told_as_of_5() if clause != of_5],
    ],
)
def test_clauses_stand_in_order(clauses_told):
    assert clauses_told
    assert [number(clause) for clause in clauses_told] == sorted(map(number, clauses_told))


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_each_clause_names_tests_that_there_are(version):
    for clause, _, tests in clauses(version):
        for name in re.findall(r"`([^`]+)`", tests):
            path, _, function = name.rpartition("::")
            file = DEFAULT if not path else path if "/" in path else f"tests/e2e/{path}"
            assert function in functions(file), f"{clause}: {name}"
        assert "`" in tests, clause
