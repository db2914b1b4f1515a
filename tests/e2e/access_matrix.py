"""Every operation, what it takes, and what a client is told who may not: the table of docs/security.md.

`run` does the operation on `name`, which the admin has made as a queue, an exchange and a stream beforehand,
and gives a reason code of MQTT, 0 where it went well; AMQP clients are told by an exception.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pika

from tests.e2e.amqp import BlockingChannel
from tests.e2e.mqtt import MqttClient

OWN = "ours-reply"
"""A queue that every user of the matrix may do anything with, but for the one without permissions."""


@dataclass(frozen=True)
class Operation:
    """`code`: what a client is told in MQTT 5, or over AMQP, who has no permission; `code_311` in MQTT 3.1.1,
    where "closed" is the end of the connection.
    """

    title: str
    takes: str
    run: Callable[[Any, str], Any]
    code: str = "403"
    code_311: str = ""


def _call(channel: BlockingChannel, name: str, verb: str, reply_to: str = OWN, **headers: Any) -> None:
    properties = pika.BasicProperties(headers=headers, reply_to=reply_to)
    channel.basic_publish("", f"$queue/{name}/{verb}", b"{}", properties)


def _commit(channel: BlockingChannel, name: str) -> None:
    headers = {"x-group-id": "g", "x-offset": 0}
    channel.basic_publish("", f"$queue/{name}-stream/$commit", b"", pika.BasicProperties(headers=headers))


def _declare_dead(channel: BlockingChannel, name: str) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name}
    channel.queue_declare(f"{OWN}-{name}", exclusive=True, arguments=arguments)


AMQP = [
    Operation(
        "`queue.declare`", "configure on the queue", lambda c, n: c.queue_declare(f"{n}-new", exclusive=True)
    ),
    Operation(
        "`queue.declare` passive", "any right on the queue", lambda c, n: c.queue_declare(n, passive=True)
    ),
    Operation(
        "`queue.declare` with dead letters",
        "configure and read on the queue, write on where they go",
        _declare_dead,
    ),
    Operation("`queue.delete`", "configure on the queue", lambda c, n: c.queue_delete(f"{n}-gone")),
    Operation("`queue.purge`", "read on the queue", lambda c, n: c.queue_purge(n)),
    Operation(
        "`queue.bind`, `unbind`: the queue",
        "write on the queue, read on the exchange",
        lambda c, n: c.queue_bind(n, "ours-x", "k"),
    ),
    Operation(
        "`queue.bind`, `unbind`: the exchange",
        "write on the queue, read on the exchange",
        lambda c, n: c.queue_bind(OWN, f"{n}-x", "k"),
    ),
    Operation(
        "`exchange.declare`",
        "configure on the exchange",
        lambda c, n: c.exchange_declare(f"{n}-new-x", "fanout", auto_delete=True),
    ),
    Operation("`exchange.delete`", "configure on the exchange", lambda c, n: c.exchange_delete(f"{n}-gone")),
    Operation(
        "`exchange.bind`, `unbind`: the destination",
        "write on the destination, read on the source",
        lambda c, n: c.exchange_bind(f"{n}-x", "ours-x", "k"),
    ),
    Operation(
        "`exchange.bind`, `unbind`: the source",
        "write on the destination, read on the source",
        lambda c, n: c.exchange_bind("ours-y", f"{n}-x", "k"),
    ),
    Operation(
        "`basic.publish`, default exchange",
        "write on the queue, or on `amq.default`",
        lambda c, n: c.basic_publish("", n, b"x"),
    ),
    Operation(
        "`basic.publish`, an exchange",
        "write on the exchange",
        lambda c, n: c.basic_publish(f"{n}-x", "k", b"x"),
    ),
    Operation(
        "`basic.publish`, `$queue/...`",
        "write on the queue",
        lambda c, n: c.basic_publish("", f"$queue/{n}/k", b"x"),
    ),
    Operation("`basic.consume`", "read on the queue, and its group", lambda c, n: c.basic_consume(n, print)),
    Operation(
        "`basic.consume`, `$queue/...`",
        "read on the queue, and its group",
        lambda c, n: c.basic_consume(f"$queue/{n}/#", print),
    ),
    Operation("`basic.get`", "read on the queue", lambda c, n: c.basic_get(n)),
    Operation("`$browse`", "read on the queue, and its group", lambda c, n: _call(c, n, "$browse")),
    Operation(
        "`$browse`, its `reply_to`",
        "write on the queue that is answered to",
        lambda c, n: _call(c, OWN, "$browse", n),
    ),
    Operation(
        "`$stream-status`", "read on the queue", lambda c, n: _call(c, f"{n}-stream", "$stream-status")
    ),
    Operation("`$commit`", "read on the queue, and its group", _commit),
    Operation(
        "`$stage-commit`, `-abort`, `-status`, `-forget`",
        "write on the queue",
        lambda c, n: _call(c, n, "$stage-status", **{"x-stage-producer": "p"}),
    ),
]


def _settle(client: MqttClient, name: str) -> int:
    claim = [("message-id", f"{name}:0"), ("group-id", "g")]
    return client.publish(f"$queue/{name}/$ack", user=claim)


MQTT = [
    Operation(
        "PUBLISH, QoS 1 and 2",
        "write on the topic, or on `amq.topic`",
        lambda c, n: c.publish(f"{n}/topic"),
        "0x87",
        "closed",
    ),
    Operation(
        "PUBLISH, retained",
        "write on the topic, or on `amq.topic`",
        lambda c, n: c.publish(f"{n}/retained", b"x", retain=True),
        "0x87",
        "closed",
    ),
    Operation(
        "PUBLISH, `$queue/...`",
        "write on the queue",
        lambda c, n: c.publish(f"$queue/{n}/k"),
        "0x87",
        "closed",
    ),
    Operation(
        "PUBLISH, `$ack`, `$nack`, `$reject`, `$extend`, `$commit`",
        "read on the queue, and its group",
        _settle,
        "0x87",
        "closed",
    ),
    Operation(
        "SUBSCRIBE",
        "read on the filter, or on `amq.topic`",
        lambda c, n: c.subscribe(f"{n}/#"),
        "0x87",
        "0x80",
    ),
    Operation(
        "SUBSCRIBE, shared",
        "read on the filter, or on `amq.topic`",
        lambda c, n: c.subscribe(f"$share/g/{n}/#"),
        "0x87",
        "0x80",
    ),
    Operation(
        "SUBSCRIBE, `$queue/...`",
        "read on the queue, and its group",
        lambda c, n: c.subscribe(f"$queue/{n}/#"),
        "0x87",
        "0x80",
    ),
    Operation(
        "SUBSCRIBE, `$share/<group>/$queue/...`",
        "read on the queue, and its group",
        lambda c, n: c.subscribe(f"$share/g/$queue/{n}/#"),
        "0x87",
        "0x80",
    ),
]
WILL = Operation("CONNECT with a will", "write on the will's topic", lambda c, n: None, "0x87", "5")


def rendered() -> str:
    """The table as docs/security.md has it."""
    lines = [
        "| operation | it takes | without that, AMQP 0.9.1 | MQTT 5 | MQTT 3.1.1 |",
        "|---|---|---|---|---|",
        "| login, unknown or wrong password | | 403, connection closed | CONNACK 0x86 | CONNACK 4 |",
        "| login, nobody where anonymous clients are not let in | | 403, connection closed | CONNACK 0x87 "
        "| CONNACK 5 |",
        "| a virtual host without permissions | an entry for it | 530, connection closed | CONNACK 0x87 "
        "| CONNACK 5 |",
    ]
    lines += [f"| {op.title} | {op.takes} | {op.code}, channel closed | | |" for op in AMQP]
    for op in [*MQTT, WILL]:
        packet = "CONNACK " if op is WILL else "PUBACK " if "PUBLISH" in op.title else "SUBACK "
        old = op.code_311 if op.code_311 == "closed" else packet + op.code_311
        lines.append(f"| {op.title} | {op.takes} | | {packet}{op.code} | {old} |")
    return "\n".join(lines)
