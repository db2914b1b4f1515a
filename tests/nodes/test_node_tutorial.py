"""The tutorial about a node that is killed: its commands and programs do what it says."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.broker_process import PROJECT
from tests.nodes.node_cluster import free_ports
from tests.storage_faults.s3 import s3_endpoint

pytestmark = [pytest.mark.extension, pytest.mark.timeout(240)]

PAGE = PROJECT / "docs" / "tutorials" / "kill-a-node.md"
SHARDS = 3
_BLOCK = re.compile(r"^```(?P<language>python|sh|text)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
_PORT = re.compile(r"\b(?:7[123]00|567[234]|1567[234])\b")

SLUICEMQ = f"""#!/bin/sh
exec {sys.executable} -m sluicemq "$@"
"""


def _script() -> tuple[str, str]:
    """Return all of the page as one program of a shell, and what it says that its programs print."""
    parts, printed = ["set -euo pipefail"], ""
    for block in _BLOCK.finditer(PAGE.read_text("utf-8")):
        match block["language"]:
            case "sh":
                parts.append(block["code"])
            case "python":
                parts.append(f"{sys.executable} - >> printed <<'END'\n{block['code']}END")
            case _:
                printed += block["code"]
    return "\n".join(parts), printed


@pytest.fixture
def store_port() -> Iterator[str]:
    with s3_endpoint() as environment:
        yield environment["AWS_ENDPOINT_URL"].rpartition(":")[2]


def test_what_the_page_says_happens_when_a_node_is_killed(tmp_path: Path, store_port: str) -> None:
    script, printed = _script()
    named = sorted(set(_PORT.findall(script)))
    first = free_ports(SHARDS * len(named))
    ports = {port: str(first + SHARDS * place) for place, port in enumerate(named)}
    ports["5000"] = store_port
    command = tmp_path / "sluicemq"
    command.write_text(SLUICEMQ)
    command.chmod(0o755)
    run = subprocess.Popen(
        ["bash", "-c", re.sub(rf"{_PORT.pattern}|\b5000\b", lambda port: ports[port[0]], script)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(PROJECT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        told, _ = run.communicate(timeout=200)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 0, (told, *[log.read_text() for log in tmp_path.glob("*.log")])
    assert (tmp_path / "printed").read_text() == printed
    assert "its owner is gone" in told
