"""The wheel, built anew and unpacked, or installed where `INSTALLED_PYTHON` is (`make test-wheel`)."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.e2e.broker_process import INSTALLED_PYTHON, PROJECT

BUILD_TIMEOUT_S = 300  # waited out only by a build that hangs
RUN_TIMEOUT_S = 100


def build(target: str, source: Path, directory: Path) -> Path:
    """Build a `wheel` or an `sdist` of `source` into `directory`; gives the file."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(directory)]
    ended = subprocess.run(
        command, cwd=source, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    [built] = directory.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


class Installed:
    """An interpreter that has the package of the wheel, and nothing of this checkout."""

    def __init__(self, python: str, environment: dict[str, str]) -> None:
        self.python = python
        self.environment = environment

    def run(self, *arguments: str, directory: Path) -> str:
        """Run Python in a directory; gives what it says, and fails when it does."""
        ended = subprocess.run(
            [self.python, *arguments],
            cwd=directory,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", PROJECT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Unpacked on the path the wheel is as good as installed, and that much sooner."""
    if INSTALLED_PYTHON:
        return Installed(INSTALLED_PYTHON, {})
    site = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(site)
    return Installed(sys.executable, {"PYTHONPATH": str(site)})
