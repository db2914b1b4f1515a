"""The unit file: what the command prints is what deploy/ has, and systemd takes it."""

import getpass
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broker.cli import app
from broker.process.systemd_unit import unit_text

UNIT = Path(__file__).resolve().parents[3] / "deploy" / "systemd" / "sluicemq.service"
COMMAND = "/opt/sluicemq/bin/python -m sluicemq serve --config /etc/sluicemq/sluicemq.yaml"


def test_unit_in_deploy_is_what_the_command_prints():
    assert UNIT.read_text() == unit_text(COMMAND, user="sluicemq")


def test_command_prints_a_unit_of_this_installation():
    result = CliRunner().invoke(app, ["systemd", "--config", "/etc/mq.yaml", "--user", "mq", "--low-ports"])
    assert result.exit_code == 0
    assert f"ExecStart={sys.executable} -m sluicemq serve --config /etc/mq.yaml\n" in result.output
    assert "User=mq\n" in result.output
    assert "AmbientCapabilities=CAP_NET_BIND_SERVICE\n" in result.output


def test_unit_is_written_where_it_is_told(tmp_path):
    result = CliRunner().invoke(app, ["systemd", "--write", str(tmp_path)])
    assert result.exit_code == 0
    assert "systemctl daemon-reload" in result.output
    assert (tmp_path / "sluicemq.service").read_text().startswith("[Unit]\n")


def test_directory_that_is_not_there_is_named(tmp_path):
    result = CliRunner().invoke(app, ["systemd", "--write", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert "cannot write" in result.output


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    unit = tmp_path / "sluicemq.service"
    unit.write_text(unit_text(f"{sys.executable} -m sluicemq serve", user=getpass.getuser()))
    verified = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
