"""The power of a broker fails at random under load; its disk keeps only what was synced, or some more."""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.crash.test_kill_restart import SEED, check, run
from tests.e2e.broker_process import PROJECT, BrokerProcess, Process
from tests.storage_faults import power

pytestmark = pytest.mark.extension


class OnPower(BrokerProcess):
    """A broker whose disk notes what was synced; `kill9` is the end of its power."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        super().__init__(directory, config, storage=str(directory / "disk-0"))
        self._source = random.Random(SEED)
        self._cut_count = 0
        self._site = directory / "site"  # Python runs what lies there as it starts
        self._site.mkdir()
        self.environment["PYTHONPATH"] = os.pathsep.join([str(self._site), str(PROJECT)])

    @property
    def _notes(self) -> Path:
        return self.directory / "notes"

    def spawn(self) -> Process:
        root = Path(self.storage)
        root.mkdir(exist_ok=True)
        # compiled, it would pass for the next one, of the same size and perhaps of the same second
        shutil.rmtree(self._site / "__pycache__", ignore_errors=True)
        (self._site / "sitecustomize.py").write_text(power.installing(root, self._notes))
        return super().spawn()

    def kill9(self) -> None:
        had_power = self.alive
        super().kill9()
        if not had_power:
            return
        root = Path(self.storage)
        self._cut_count += 1
        left = self.directory / f"disk-{self._cut_count}"
        if self._notes.is_dir():  # else it had not begun
            power.restore(root, self._notes, left, self._source if self._source.random() < 0.7 else None)
            shutil.rmtree(root)
            shutil.rmtree(self._notes)
            self.storage = str(left)


def test_five_power_cuts_under_mixed_load(tmp_path):
    broker, ledger = run(tmp_path, 5, SEED, OnPower)
    check(broker, ledger, 5)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_fifty_power_cuts_under_mixed_load(tmp_path):
    broker, ledger = run(tmp_path, 50, SEED + 1, OnPower)
    check(broker, ledger, 50)
