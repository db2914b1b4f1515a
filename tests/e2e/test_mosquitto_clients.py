"""mosquitto_pub, mosquitto_sub and mosquitto_rr, with every version of MQTT they speak."""

import shutil
import subprocess

import pytest

pytestmark = pytest.mark.skipif(shutil.which("mosquitto_rr") is None, reason="mosquitto-clients are missing")
VERSIONS = pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])


def mosquitto(command, broker, version, *options):
    return subprocess.Popen(
        [f"mosquitto_{command}", "-p", str(broker.mqtt_port), "-V", version, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process):
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    return output


@VERSIONS
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_retained_message_is_published_and_received(broker, name, version, qos):
    identity = ["-i", f"{name}-{qos}"]
    output_of(mosquitto("pub", broker, version, *identity, "-t", name, "-m", "hello", "-q", qos, "-r"))
    reader = mosquitto("sub", broker, version, *identity, "-t", f"{name}/#", "-q", qos, "-C", "1", "-W", "10")
    assert output_of(reader) == "hello\n"
    output_of(mosquitto("pub", broker, version, *identity, "-t", name, "-n", "-r"))


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_lasting_session_has_what_came_meanwhile(broker, name, version):
    lasting = ["-i", name, "-c", "-t", name, "-q", "1"]
    lasting += ["-x", "60"] if version == "mqttv5" else []
    subscribed = mosquitto("sub", broker, version, *lasting, "-E")
    output_of(subscribed)
    for text in ("one", "two"):
        output_of(mosquitto("pub", broker, version, "-t", name, "-m", text, "-q", "1"))
    assert output_of(mosquitto("sub", broker, version, *lasting, "-C", "2", "-W", "10")) == "one\ntwo\n"


def test_request_is_answered(broker, mqtt, name):
    """By the response topic and the correlation data of MQTT 5."""
    responder = mqtt()
    responder.subscribe(f"{name}/ask")
    asking = mosquitto(
        "rr", broker, "mqttv5", "-t", f"{name}/ask", "-e", f"{name}/told", "-m", "how are you", "-W", "15"
    )
    request = responder.take_one(10)
    properties = request.properties
    options = {}
    if hasattr(properties, "CorrelationData"):
        options["CorrelationData"] = properties.CorrelationData
    responder.publish(properties.ResponseTopic, request.payload.upper(), **options)
    assert output_of(asking) == "HOW ARE YOU\n"
