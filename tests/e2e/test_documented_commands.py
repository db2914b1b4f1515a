"""The shell commands of the documentation work as they are printed: every block that is marked `sh`.

A page gets a broker of its own and an empty directory. Its programs run too, in their turn: commands go on
with what they made. Blocks without the mark are not run: they install, serve for ever, or take a machine.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.broker_process import INSTALLED_PYTHON, PROJECT, BrokerProcess

pytestmark = pytest.mark.extension

BLOCK_TIMEOUT_S = 40
PAGES = ("docs/mq-core.md", "docs/tutorials/production.md", "docs/tutorials/retries.md")
OF_NODES = "docs/tutorials/kill-a-node.md"  # tests/nodes/test_node_tutorial.py
_BLOCK = re.compile(r"^```(?P<language>python|sh)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
_DEFAULT_PORTS = {"1883": "mqtt", "5672": "amqp", "15672": "http", "15673": "mqcore"}

# curl ends well whatever the answer is; and the commands that ask a broker take its address by an option
BEGINNING = """
set -euo pipefail
curl() { command curl --silent --show-error --fail-with-body "$@"; }
sluicemq() {
    case "$1" in
        queue | group | exchange | binding | connection | session | pub) set -- "$@" --url "$BROKER_URL" ;;
    esac
    "$PYTHON" -m sluicemq "$@"
}
"""


class Block(NamedTuple):
    """A program, or commands."""

    language: str
    code: str


def blocks_of(page: str) -> list[Block]:
    text = (PROJECT / page).read_text("utf-8")
    return [Block(match["language"], match["code"]) for match in _BLOCK.finditer(text)]


def test_every_page_with_such_commands_is_tried() -> None:
    marked = {
        str(path.relative_to(PROJECT))
        for path in (PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md"))
        if any(block.language == "sh" for block in blocks_of(str(path.relative_to(PROJECT))))
    }
    assert marked == {*PAGES, OF_NODES}


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_end_well(
    page: str, own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = own_broker({}, arguments=["--mqcore", "0"])
    directory = tmp_path / "reader"
    directory.mkdir()
    environment = {**os.environ, "BROKER_URL": broker.http_url, "PYTHON": INSTALLED_PYTHON or sys.executable}
    if not INSTALLED_PYTHON:
        environment["PYTHONPATH"] = str(PROJECT)
    for block in blocks_of(page):
        code = re.sub(
            r"\b(1883|5672|15672|15673)\b",
            lambda port: str(broker.ports[_DEFAULT_PORTS[port[0]]]),
            block.code,
        )
        command = (
            [sys.executable, "-c", code] if block.language == "python" else ["bash", "-c", BEGINNING + code]
        )
        run = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
            check=False,
        )
        assert run.returncode == 0, (code, run.stdout, run.stderr)
