"""MQTT sessions that are away: what they cost, how long a restart takes, how they are served when they
return.

    python -m benchmarks.sessions [--sessions 10000] [--messages 100] [--shared 1000]

Begins sessions with a topic of their own each, publishes to them while they are away, kills the broker,
starts it again, and has a tenth of them come back at once. Then publishes to one topic that one session is
subscribed to, and to one that many are: a message is stored once, so that should cost about the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from benchmarks.brokers import SluiceMQ
from benchmarks.load import process_stat
from benchmarks.load.mqtt_wire import encode_packet, encode_string, publish_packet, subscribe_packet
from benchmarks.load.target import Target

PAYLOAD = b"x" * 100
AT_ONCE = 64
WINDOW = 1_000
TIMEOUT_S = 900.0


def connect_packet(client_id: str) -> bytes:
    """CONNECT of a 3.1.1 session that lasts."""
    return encode_packet(0x10, b"\x00\x04MQTT\x04\x00\x00\x00" + encode_string(client_id))


async def read_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """First byte and body of the next packet."""
    first = (await reader.readexactly(1))[0]
    length = shift = 0
    while True:
        digit = (await reader.readexactly(1))[0]
        length |= (digit & 0x7F) << shift
        shift += 7
        if digit < 0x80:
            return first, await reader.readexactly(length)


async def begin_session(target: Target, client_id: str, topic: str, gate: asyncio.Semaphore) -> None:
    """Subscribe, and go away."""
    async with gate:
        reader, writer = await asyncio.open_connection(target.host, target.mqtt_port)
        writer.write(connect_packet(client_id) + subscribe_packet(1, topic, 1))
        await read_packet(reader)
        await read_packet(reader)
        writer.write(b"\xe0\x00")
        await reader.read()
        writer.close()


async def publish(target: Target, topics: list[str]) -> float:
    """Publish with QoS 1 to each topic in turn, `WINDOW` unconfirmed at a time; gives messages per second."""
    reader, writer = await asyncio.open_connection(target.host, target.mqtt_port)
    writer.write(encode_packet(0x10, b"\x00\x04MQTT\x04\x02\x00\x00" + encode_string("publisher")))
    await read_packet(reader)
    began = time.monotonic()
    sent = confirmed = 0
    while confirmed < len(topics):
        while sent < len(topics) and sent - confirmed < WINDOW:
            writer.write(publish_packet(topics[sent], PAYLOAD, 1, sent % 65_535 + 1))
            sent += 1
        await writer.drain()
        confirmed += len(await reader.readexactly(4)) // 4
    rate = len(topics) / (time.monotonic() - began)
    writer.close()
    return rate


async def come_back(target: Target, client_id: str, topic: str, expected: int) -> None:
    """Receive and acknowledge what came to the session's topic, and nothing else."""
    reader, writer = await asyncio.open_connection(target.host, target.mqtt_port)
    writer.write(connect_packet(client_id))
    _, body = await read_packet(reader)
    assert body == b"\x01\x00", f"{client_id} has no session"
    name = encode_string(topic)
    for _ in range(expected):
        first, body = await read_packet(reader)
        assert first & 0xF0 == 0x30, hex(first)
        assert body.startswith(name), f"{client_id} got a message of {body[:20]!r}"
        writer.write(b"\x40\x02" + body[len(name) : len(name) + 2])
    writer.write(b"\xe0\x00")
    await reader.read()
    writer.close()


async def own_topics(broker: SluiceMQ, sessions: int, messages: int) -> dict[str, object]:
    """Every session has its own topic."""
    target = broker.target
    gate = asyncio.Semaphore(AT_ONCE)
    names = [(f"device-{number}", f"own/{number}") for number in range(sessions)]
    began = time.monotonic()
    await asyncio.gather(*(begin_session(target, *name, gate) for name in names))
    report: dict[str, object] = {
        "sessions": sessions,
        "begun_per_s": round(sessions / (time.monotonic() - began)),
        "rss_begun_mb": process_stat.rss_bytes(target.pid) // 1_000_000,
    }
    rate = await publish(target, [topic for _, topic in names] * messages)
    report["published_per_s"] = round(rate)
    report["rss_published_mb"] = process_stat.rss_bytes(target.pid) // 1_000_000
    await asyncio.to_thread(broker.stop, kill=True)
    report["restart_s"] = round(await asyncio.to_thread(broker.start), 2)
    report["rss_restarted_mb"] = process_stat.rss_bytes(broker.target.pid) // 1_000_000
    returning = names[:: max(1, sessions // 1_000)][:1_000]
    began = time.monotonic()
    await asyncio.gather(*(come_back(broker.target, *name, messages) for name in returning))
    took_s = time.monotonic() - began
    report["returned"] = len(returning)
    report["returned_in_s"] = round(took_s, 1)
    report["delivered_per_s"] = round(len(returning) * messages / took_s)
    report["rss_returned_mb"] = process_stat.rss_bytes(broker.target.pid) // 1_000_000
    return report


async def shared_topic(broker: SluiceMQ, sessions: int, messages: int) -> dict[str, object]:
    """One session on a busy topic, then many: CPU of the broker for each message."""
    target = broker.target
    gate = asyncio.Semaphore(AT_ONCE)
    costs = []
    for count in (1, sessions):
        topic = f"busy/{count}"
        await asyncio.gather(*(begin_session(target, f"{topic}-{i}", topic, gate) for i in range(count)))
        before = process_stat.cpu_s(target.pid)
        await publish(target, [topic] * messages)
        costs.append((process_stat.cpu_s(target.pid) - before) / messages * 1e6)
    return {
        "sharing": sessions,
        "us_per_message_of_one": round(costs[0], 1),
        "us_per_message_of_all": round(costs[1], 1),
        "ratio": round(costs[1] / costs[0], 2),
    }


async def measure(broker: SluiceMQ, sessions: int, messages: int, shared: int) -> dict[str, object]:
    async with asyncio.timeout(TIMEOUT_S):
        report = await own_topics(broker, sessions, messages)
        return report | await shared_topic(broker, shared, 50_000)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--shared", type=int, default=1_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluicemq-") as directory:
        broker = SluiceMQ(Path(directory))
        broker.start()
        try:
            report = asyncio.run(measure(broker, given.sessions, given.messages, given.shared))
        finally:
            broker.stop()
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
