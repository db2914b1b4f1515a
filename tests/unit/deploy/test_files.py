"""The files of deploy/ fit the broker: versions, configurations, what the image is built from."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from broker.version import VERSION
from config import limits
from config.settings_loader import load_settings
from hatch_build import FOLDERS, PACKAGE

PROJECT = Path(__file__).resolve().parents[3]
DEPLOY = PROJECT / "deploy"
CHART = DEPLOY / "helm" / "sluicemq"
NODES = ["nodes.enabled=true", "storage.url=s3://bucket/prefix"]
needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")


def manifests_of(file):
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / file).read_text()))


def only(manifests, kind):
    [found] = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def render(*values):
    return subprocess.run(
        ["helm", "template", "sluicemq", CHART, "--kube-version=1.31.0", *[f"--set={v}" for v in values]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def nodes_of_compose():
    services = yaml.safe_load((DEPLOY / "docker" / "compose.nodes.yaml").read_text())["services"]
    return {name: service for name, service in services.items() if name.startswith("node-")}


def test_chart_and_manifests_are_of_this_version():
    chart = yaml.safe_load((DEPLOY / "helm" / "sluicemq" / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION
    for file in ("sluicemq.yaml", "nodes.yaml"):
        assert f'app.kubernetes.io/version: "{VERSION}"' in (DEPLOY / "kubernetes" / file).read_text()


@pytest.mark.parametrize("file", ["production.yaml", "docker/sluicemq.yaml"])
def test_configuration_is_valid(file):
    load_settings(DEPLOY / file)


def test_configuration_in_the_manifests_is_valid(tmp_path):
    found = only(manifests_of("sluicemq.yaml"), "ConfigMap")
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


def test_each_pod_of_the_manifests_with_nodes_is_a_node_that_the_others_reach(tmp_path):
    manifests = manifests_of("nodes.yaml")
    file = tmp_path / "sluicemq.yaml"
    file.write_text(only(manifests, "ConfigMap")["data"]["sluicemq.yaml"])
    pods = only(manifests, "StatefulSet")["spec"]
    [container] = pods["template"]["spec"]["containers"]
    node, listen = container["env"]
    assert node["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    variables = {
        node["name"]: "sluicemq-1",
        listen["name"]: listen["value"].replace(f"$({node['name']})", "sluicemq-1"),
    }
    cluster = load_settings(file, variables).cluster
    assert cluster.address == ("sluicemq-1.sluicemq-pods.default.svc.cluster.local", 7000)
    assert (cluster.node_name, cluster.shards, cluster.lease_ms) == ("sluicemq-1", 12, 5_000)
    assert str(Path(cluster.secret_file).parent) in {each["mountPath"] for each in container["volumeMounts"]}
    [service] = [each for each in manifests if each["metadata"]["name"] == pods["serviceName"]]
    assert service["spec"]["publishNotReadyAddresses"] is True
    between_pods = only(manifests, "NetworkPolicy")["spec"]["ingress"][1]
    assert between_pods["from"] == [{"podSelector": pods["selector"]}]
    assert between_pods["ports"] == [{"port": 7000, "endPort": 7000 + cluster.shards - 1}]


def test_nodes_are_not_restarted_while_they_have_no_shard_and_have_time_to_hand_over():
    pods = only(manifests_of("nodes.yaml"), "StatefulSet")["spec"]
    pod = pods["template"]["spec"]
    [container] = pod["containers"]
    assert pods["replicas"] == 3
    assert (
        container["livenessProbe"]["httpGet"]["path"] == "/api/v1/health"
    )  # which one without a shard answers
    assert container["startupProbe"]["failureThreshold"] > 10**6
    assert container["readinessProbe"]["httpGet"]["path"] == "/api/v1/ready"
    assert pod["terminationGracePeriodSeconds"] > limits.WORKER_STOP_TIMEOUT_S


def test_nodes_of_the_compose_file_are_of_one_cluster():
    configuration = DEPLOY / "docker" / "sluicemq.yaml"
    nodes = nodes_of_compose()
    settings = {
        name: load_settings(configuration, {key: str(value) for key, value in node["environment"].items()})
        for name, node in nodes.items()
    }
    assert len(settings) == 3
    assert [(name, 7000) for name in settings] == [each.cluster.address for each in settings.values()]
    assert list(settings) == [each.cluster.node_name for each in settings.values()]
    assert len({each.storage.url for each in settings.values()}) == 1
    assert {each.cluster.secret_file for each in settings.values()} == {"/run/secrets/cluster"}
    ports = [port for node in nodes.values() for port in node["ports"]]
    assert len({port.rpartition(":")[0] for port in ports}) == len(ports) == 9


def test_nodes_of_the_compose_file_are_healthy_once_ready_and_have_time_to_hand_over():
    for node in nodes_of_compose().values():
        assert "/api/v1/ready" in node["healthcheck"]["test"][-1]
        assert int(node["stop_grace_period"].removesuffix("s")) > limits.WORKER_STOP_TIMEOUT_S


@needs_helm
def test_chart_gives_the_manifests():
    for values, file in (
        ([], "sluicemq.yaml"),
        ([*NODES, "storage.secret=sluicemq-bucket", "networkPolicy.enabled=true"], "nodes.yaml"),
    ):
        assert render(*values).stdout == (DEPLOY / "kubernetes" / file).read_text()


@needs_helm
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["nodes.enabled=true"], "nodes: "),
        ([*NODES, "nodes.secret="], "nodes.secret: "),
        ([*NODES, "nodes.shards=2"], "nodes.shards: "),
        ([*NODES, "replicas=13"], "nodes.shards: "),
        (["replicas=2"], "replicas: "),
    ],
)
def test_chart_refuses_what_cannot_work(values, reason):
    run = render(*values)
    assert run.returncode != 0
    assert reason in run.stderr


@needs_helm
def test_chart_takes_a_single_node():
    manifests = list(yaml.safe_load_all(render(*NODES, "replicas=1").stdout))
    assert only(manifests, "StatefulSet")["spec"]["replicas"] == 1
