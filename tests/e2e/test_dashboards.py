"""The dashboard and the alert rules ask for metrics that the broker has."""

import json
import re
import shutil
import subprocess

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e import amqp
from tests.e2e.broker_process import PROJECT, BrokerProcess

DASHBOARD = PROJECT / "deploy" / "grafana" / "dashboards" / "sluicemq.json"
ALERTS = PROJECT / "deploy" / "prometheus" / "alerts.yml"


def test_every_metric_asked_for_is_there(
    broker: BrokerProcess, channel: amqp.BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"x")
    channel.basic_get(queue)
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    asked += [rule["expr"] for rule in rules]
    names = {name for expression in asked for name in re.findall(r"sluicemq_\w+", expression)}
    text = httpx.get(f"{broker.http_url}/metrics", trust_env=False).text
    there = {s.name for family in text_string_to_metric_families(text) for s in family.samples}
    assert names <= there


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_the_alert_rules() -> None:
    subprocess.run(["promtool", "check", "rules", str(ALERTS)], check=True, timeout=20)
