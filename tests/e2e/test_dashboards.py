"""The dashboard and the alert rules ask for metrics that the broker has."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e import amqp
from tests.e2e.broker_process import PROJECT, BrokerProcess

DASHBOARD = PROJECT / "deploy" / "grafana" / "dashboards" / "sluicemq.json"
OF_SEVERAL = {
    "sluicemq_worker_up",  # tests/e2e/test_workers_admin.py
    "sluicemq_node_shards",  # tests/nodes/test_nodes.py, as those that follow
    "sluicemq_node_draining",
    "sluicemq_shard_owned",
}
ALERTS = PROJECT / "deploy" / "prometheus" / "alerts.yml"


def test_every_metric_asked_for_is_there(
    broker: BrokerProcess, channel: amqp.BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"x")
    channel.basic_get(queue)
    shovel = {"src-uri": "amqp://", "src-queue": queue, "dest-uri": "amqp://", "dest-queue": queue}
    url = f"{broker.http_url}/api/v1/parameters/shovel/{queue}"
    httpx.put(url, json={"value": shovel}, trust_env=False).raise_for_status()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    asked += [rule["expr"] for rule in rules]
    names = {name for expression in asked for name in re.findall(r"sluicemq_\w+", expression)}
    text = httpx.get(f"{broker.http_url}/metrics", trust_env=False, timeout=20).text
    httpx.delete(url, trust_env=False).raise_for_status()
    there = {s.name for family in text_string_to_metric_families(text) for s in family.samples}
    assert names - OF_SEVERAL <= there


def metric(process: BrokerProcess, name: str) -> float:
    text = httpx.get(f"{process.http_url}/metrics", trust_env=False, timeout=20).text
    [value] = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    ]
    return value


def test_journal_and_start_are_told_after_a_crash(own_broker: Callable[..., BrokerProcess]) -> None:
    process = own_broker({})
    assert metric(process, "sluicemq_start_replayed_commits") == 0
    assert 0 < metric(process, "sluicemq_start_seconds") < 60
    connection = amqp.connect(process.amqp_port)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("kept", durable=True)
    amqp.publish(channel, "kept", b"x" * 100_000)
    assert metric(process, "sluicemq_journal_segments_in_use") > 0
    segments = metric(process, "sluicemq_journal_segments")
    assert segments <= metric(process, "sluicemq_journal_segments_max")
    files = (process.directory / "data" / "journal").iterdir()
    assert metric(process, "sluicemq_journal_size_bytes") <= sum(file.stat().st_size for file in files)
    process.kill9()
    process.start()
    replayed = re.findall(r"storage.replayed.*commit_count=(\d+)", process.log)
    assert metric(process, "sluicemq_start_replayed_commits") == (int(replayed[-1]) if replayed else 0)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_the_alert_rules() -> None:
    subprocess.run(["promtool", "check", "rules", str(ALERTS)], check=True, timeout=20)
