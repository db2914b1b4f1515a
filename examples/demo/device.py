"""A device of the demo: publishes numbered orders over MQTT 5 at QoS 1 until it is told to stop.

When the broker goes away, paho connects again and publishes anew whatever got no PUBACK: so an order may
arrive twice, but none is forgotten.
"""

import signal
import time
from collections import deque
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

import paho.mqtt.client as mqtt

from examples.demo.report import Confirmed, Sent

REPORT_INTERVAL_S = 0.2
CATCH_UP_S = 0.1  # a device that was held up publishes faster for no longer than this makes up for
UNCONFIRMED_MAX = 500
CONFIRM_TIMEOUT_S = 20


def run(name: str, port: int, rate: int, stopping: Event, reports: Queue) -> None:
    """Publish `rate` orders a second to `$queue/orders/<name>`; ends when all of them are confirmed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    unconfirmed: dict[int, str] = {}
    acknowledged: deque[tuple[int, bool]] = deque()

    def on_publish(
        client: object, userdata: object, mid: int, reason: mqtt.ReasonCode, properties: object
    ) -> None:
        acknowledged.append((mid, not reason.is_failure))

    def report() -> None:
        confirmed = []
        while acknowledged:
            mid, success = acknowledged.popleft()
            order = unconfirmed.pop(mid)
            if success:
                confirmed.append(order)
        reports.put(Sent(name, count))
        reports.put(Confirmed(confirmed))

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=f"device-{name}", protocol=mqtt.MQTTv5)
    client.on_publish = on_publish
    client.reconnect_delay_set(0.1, 0.5)  # type: ignore[arg-type]  # parts of a second are fine
    client.max_inflight_messages_set(UNCONFIRMED_MAX)
    client.connect_async("127.0.0.1", port)
    client.loop_start()

    count = 0
    due = reported = time.monotonic()
    while not stopping.is_set():
        now = time.monotonic()
        if now >= due and len(unconfirmed) - len(acknowledged) < UNCONFIRMED_MAX:
            due = max(due + 1 / rate, now - CATCH_UP_S)
            order = f"{name}-{count}"
            unconfirmed[client.publish(f"$queue/orders/{name}", order, qos=1).mid] = order
            count += 1
        else:
            time.sleep(0.002)
        if now - reported > REPORT_INTERVAL_S:
            reported = now
            report()
    deadline = time.monotonic() + CONFIRM_TIMEOUT_S
    while len(unconfirmed) > len(acknowledged) and time.monotonic() < deadline:
        time.sleep(0.01)
    report()
    client.disconnect()
    client.loop_stop()
