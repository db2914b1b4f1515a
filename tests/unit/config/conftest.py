"""Files written for one test."""

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from config.settings_loader import check_file


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a configuration file; the text may be indented as a whole."""

    def write_file(text: str) -> Path:
        path = tmp_path / "broker.yaml"
        path.write_text(textwrap.dedent(text), "utf-8")
        return path

    return write_file


@pytest.fixture
def problems(write: Callable[[str], Path]) -> Callable[..., list[str]]:
    """The problems of a file, with its folder left out."""

    def check(text: str, env: Mapping[str, str] | None = None) -> list[str]:
        path = write(text)
        return [problem.replace(f"{path.parent}/", "") for problem in check_file(path, env or {})]

    return check
