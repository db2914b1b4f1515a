"""Qpid Proton's Python client against the broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e import amqp
from tests.e2e.broker_process import Broker

PYTHON = "/usr/bin/python3"  # Debian's, which python3-qpid-proton is for
PROGRAM = Path(__file__).parents[1] / "programs" / "proton_client.py"


def has_proton() -> bool:
    try:
        return (
            subprocess.run([PYTHON, "-c", "import proton"], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        return False


@pytest.mark.skipif(not has_proton(), reason=f"{PYTHON} has no proton (Debian's python3-qpid-proton)")
def test_proton_sends_receives_settles_and_selects(
    broker: Broker, channel: amqp.BlockingChannel, queue: str
) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{broker.amqp_port}"
    done = subprocess.run(
        [PYTHON, str(PROGRAM), url, queue], capture_output=True, text=True, timeout=25, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "sent True",
        "sent True",
        "sent True",
        "received 0 message 0 0",
        "again 0 0",
        "modified 0 0",
        "selected 2 {'number': 2}",
        "dynamic True",
        "released True",
    ]
    assert channel.queue_declare(queue, passive=True).method.message_count == 1
