"""Every example of docs/semantics and docs/tutorials runs as it stands and prints what the page says."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.broker_process import PROJECT, BrokerProcess

pytestmark = pytest.mark.extension

EXAMPLE_TIMEOUT_S = 20
_EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```\n+```text\n(?P<output>.*?)```", re.DOTALL)


class Example(NamedTuple):
    """A program of a page, and what the page says that it prints."""

    page: str
    code: str
    output: str


SEMANTICS = sorted((PROJECT / "docs" / "semantics").glob("*.md"))
# in the order in which one reads them: each goes on with what the one before made
TUTORIALS = [
    PROJECT / "docs" / "tutorials" / f"{name}.md"
    for name in ("first-device", "first-worker", "retries", "streams")
]


def _examples() -> list[Example]:
    return [
        Example(f"{path.parent.stem}-{path.stem}-{number}", match["code"], match["output"])
        for path in (*SEMANTICS, *TUTORIALS)
        for number, match in enumerate(_EXAMPLE.finditer(path.read_text("utf-8")), start=1)
    ]


@pytest.fixture(scope="module")
def documented_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BrokerProcess]]:
    """A broker for each section: the examples use plain names for their queues."""
    sections = {example.page.partition("-")[0] for example in _examples()}
    brokers = {section: BrokerProcess(tmp_path_factory.mktemp(section)) for section in sections}
    for broker in brokers.values():
        broker.start()
    yield brokers
    for broker in brokers.values():
        broker.kill9()


@pytest.mark.parametrize("example", _examples(), ids=lambda example: example.page)
def test_example_prints_what_its_page_says(
    example: Example, documented_brokers: dict[str, BrokerProcess], tmp_path: Path
) -> None:
    broker = documented_brokers[example.page.partition("-")[0]]
    ports = {"5672": broker.amqp_port, "1883": broker.mqtt_port, "15672": broker.ports["http"]}
    program = tmp_path / "example.py"
    program.write_text(re.sub(r"\b(1?5672|1883)\b", lambda port: str(ports[port[0]]), example.code), "utf-8")

    run = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=EXAMPLE_TIMEOUT_S,
        check=False,
    )

    assert run.stderr == ""
    assert run.stdout == example.output


def test_each_page_but_the_index_has_an_example() -> None:
    pages = {f"{path.parent.stem}-{path.stem}" for path in (*SEMANTICS, *TUTORIALS)} - {"semantics-README"}

    assert {example.page.rpartition("-")[0] for example in _examples()} == pages
