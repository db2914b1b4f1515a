"""`.pre-commit-config.yaml`: the hooks check what `make lint types` checks, with the same versions."""

import re
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[3]


def test_hooks_of_ruff_are_of_the_locked_version() -> None:
    config = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text())
    [rev] = [repo["rev"] for repo in config["repos"] if repo["repo"].endswith("/ruff-pre-commit")]
    locked = re.search(r"^ruff==(\S+)", (PROJECT / "requirements-dev.lock").read_text(), re.MULTILINE)
    assert locked is not None
    assert rev == f"v{locked[1]}"
