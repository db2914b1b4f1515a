"""`docs/amqp.md`: everything AMQP has stands there, and what holds each row is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from pamqp import commands

from broker.amqp.topology import queue_arguments
from protocols.amqp091 import channel
from queue_manager.api import EXCHANGE_TYPES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "amqp.md").read_text("utf-8")
HELD_BY = "held by"
DIFFERENCES = "## Where it differs from RabbitMQ"


def rows() -> list[tuple[str, str]]:
    """The rows of all tables but that of the differences: their first and their last column."""
    found = []
    is_head = True
    for line in PAGE.split(DIFFERENCES)[0].splitlines():
        if not line.startswith("|"):
            is_head = True
            continue
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        if is_head:
            assert cells[-1] == HELD_BY, line
        elif not set(line) <= set("|-"):
            found.append((cells[0], cells[-1]))
        is_head = False
    return found


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("what", "tests"), rows())
def test_each_row_names_tests_that_there_are(what: str, tests: str) -> None:
    names = re.findall(r"`([^`]+)`", tests)
    assert names, what
    for name in names:
        file, _, function = name.partition("::")
        path = ROOT / "tests" / (file if "/" in file else f"e2e/test_{file}.py")
        assert path.exists(), name
        assert not function or f"test_{function}" in functions(path), name


def named() -> set[str]:
    """Everything that is set as code on the page."""
    return set(re.findall(r"`([^`]+)`", PAGE))


def test_every_exchange_type_and_queue_argument_stands_there() -> None:
    arguments = {*queue_arguments._READERS, *queue_arguments._STREAM_READERS, queue_arguments.TYPE}
    assert {*EXCHANGE_TYPES, *arguments} <= named()


def test_every_method_of_a_channel_stands_there() -> None:
    told = [what for what, _ in rows()]
    for index in channel.PASSED_METHODS:
        group, _, name = commands.INDEX_MAPPING[index].name.partition(".")  # type: ignore[attr-defined]
        wanted = re.sub("(?<!^)(?=[A-Z])", "-", name).lower()
        lines = [line for line in told if line.startswith(f"{group.lower()}.")]
        assert wanted.endswith("-ok") or any(re.search(rf"\b{wanted}\b", line) for line in lines), wanted
