"""What `sluicemq store verify` says of a broker that does not run."""

from __future__ import annotations

import subprocess

from tests.e2e.broker_process import WORKING_DIRECTORY, command_line


def left_in_store(storage: str) -> str | None:
    """What `store verify` finds, or what there is more than in an empty store."""
    done = subprocess.run(
        command_line("store", "verify", "--storage", storage),
        cwd=WORKING_DIRECTORY,
        capture_output=True,
        text=True,
    )
    return None if done.returncode == 0 else done.stdout + done.stderr
