"""A device: publishes readings to a queue over MQTT 5, each at QoS 1, and waits for every PUBACK.

    python -m sluicemq.examples.mqtt_device --port 1883 --topic '$queue/orders/eu' --count 5

Needs paho-mqtt. The PUBACK of a message in a durable queue means that it is on disk.
"""

import argparse
import json
import sys
import time

try:
    import paho.mqtt.client as mqtt
except ImportError:
    sys.exit(f"this example needs paho-mqtt: {sys.executable} -m pip install paho-mqtt")


def main() -> None:
    parser = argparse.ArgumentParser(description="Publish to a queue over MQTT.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--address", action="append", help="HOST:PORT instead; of several nodes each")
    parser.add_argument("--topic", default="$queue/orders/eu")
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between messages")
    options = parser.parse_args()

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.on_publish = _on_publish
    _connect(client, options.address or [f"{options.host}:{options.port}"])
    client.loop_start()
    for number in range(1, options.count + 1):
        body = json.dumps({"number": number, "at": round(time.time(), 3)})
        message = client.publish(options.topic, body, qos=1)
        message.wait_for_publish(timeout=10)
        if not message.is_published():
            sys.exit(f"{body} was not confirmed in 10 s")
        print(f"{options.topic}  {body}")
        time.sleep(options.interval)
    client.disconnect()
    client.loop_stop()


def _connect(client: mqtt.Client, addresses: list[str]) -> None:
    """Connect to the first broker that is there."""
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            client.connect(host, int(port))
            return
        except OSError as error:
            print(f"no broker at {address}: {error}", file=sys.stderr)
    sys.exit(1)


def _on_publish(
    client: mqtt.Client, userdata: object, mid: int, reason: mqtt.ReasonCode, properties: object
) -> None:
    if reason.is_failure:
        print(f"refused: {reason}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
