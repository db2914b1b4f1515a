"""The files of deploy/ fit the broker: versions, configurations, what the image is built from."""

import re
from pathlib import Path

import pytest
import yaml

from broker.version import VERSION
from config.settings_loader import load_settings
from hatch_build import FOLDERS, PACKAGE

PROJECT = Path(__file__).resolve().parents[3]
DEPLOY = PROJECT / "deploy"


def test_chart_and_manifests_are_of_this_version():
    chart = yaml.safe_load((DEPLOY / "helm" / "sluicemq" / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION
    assert f'app.kubernetes.io/version: "{VERSION}"' in (DEPLOY / "kubernetes" / "sluicemq.yaml").read_text()


@pytest.mark.parametrize("file", ["production.yaml", "docker/sluicemq.yaml"])
def test_configuration_is_valid(file):
    load_settings(DEPLOY / file)


def test_configuration_in_the_manifests_is_valid(tmp_path):
    manifests = yaml.safe_load_all((DEPLOY / "kubernetes" / "sluicemq.yaml").read_text())
    [found] = [manifest for manifest in manifests if manifest["kind"] == "ConfigMap"]
    file = tmp_path / "sluicemq.yaml"
    file.write_text(found["data"]["sluicemq.yaml"])
    settings = load_settings(file)
    assert set(settings.listeners.opened()) >= {"mqtt", "amqp", "http"}


def test_everything_the_image_copies_is_let_through():
    let_through = set(re.findall(r"^!(.+)$", (PROJECT / ".dockerignore").read_text(), re.MULTILINE))
    assert let_through >= {*FOLDERS, PACKAGE, "hatch_build.py", "pyproject.toml", "requirements.lock"}
    assert all((PROJECT / name).exists() for name in let_through)


def test_image_names_ports_of_the_default_listeners():
    exposed = re.search(r"^EXPOSE (.+)$", (DEPLOY / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    assert exposed is not None
    settings = load_settings(DEPLOY / "docker" / "sluicemq.yaml")
    assert {listener.port for listener in settings.listeners.opened().values()} <= set(
        map(int, exposed[1].split())
    )
