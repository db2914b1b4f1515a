"""Every operation, what it takes, and what a client is told who may not: the table of docs/security.md.

`run` does the operation on `name`, which the admin has made as a queue, an exchange and a stream beforehand,
and gives a reason code of MQTT, 0 where it went well; AMQP clients are told by an exception.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import httpx
import pika

from protocols.amqp10.constants import RECEIVER, SENDER
from protocols.amqp10.performatives import (
    Attach,
    Coordinator,
    Declare,
    Detach,
    Flow,
    Source,
    Target,
    TransactionalState,
    as_described,
)
from protocols.amqp10.types import Described, Symbol, ULong, encode_value
from tests.e2e.amqp import BlockingChannel
from tests.e2e.mqtt import MqttClient
from tests.e2e.raw_amqp10 import Management, RawAmqp10, message

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


NOT_AUTHORIZED = "amqp:unauthorized-access"


def _attach(client: RawAmqp10, attach: Attach) -> str:
    """Attach a link, and return the condition that it is refused with."""
    answer = client.attach(attach)
    if (answer.target if attach.role is SENDER else answer.source) is not None:
        return ""
    error = client.expect(Detach).error
    return "" if error is None else error.condition


def _send_to(address: str) -> Callable[[RawAmqp10, str], str]:
    return lambda client, name: _attach(
        client, Attach("s", 5, SENDER, target=Target(address.format(name)), initial_delivery_count=0)
    )


def _receive_from(source: Source, **properties: str) -> Callable[[RawAmqp10, str], str]:
    named = {Symbol(key.replace("_", "-")): value for key, value in properties.items()}
    return lambda client, name: _attach(
        client,
        Attach(
            name,
            6,
            RECEIVER,
            source=source._replace(address=source.address and source.address.format(name)),
            target=Target(),
            properties=named,
        ),
    )


def _send_dynamically(client: RawAmqp10, name: str) -> str:
    target = Target(dynamic=True, capabilities=(Symbol("temporary-queue"),))
    return _attach(client, Attach(name, 5, SENDER, target=target, initial_delivery_count=0))


def _send_in_transaction(client: RawAmqp10, name: str) -> str:
    target = Coordinator(("amqp:local-transactions",))
    _attach(client, Attach("control", 7, SENDER, target=target, initial_delivery_count=0))
    client.expect(Flow)
    declare = client.transfer(encode_value(Described(ULong(0x77), as_described(Declare()))), 7)
    txn_id = client.outcomes(1)[declare].txn_id
    client.attach_sender(None, 5)
    sent = client.transfer(message(b"x", to=f"/queues/{name}"), 5, state=TransactionalState(txn_id))
    error = getattr(client.outcomes(1)[sent].outcome, "error", None)
    return "" if error is None else error.condition


def _send_anonymously(address: str, **annotations: int) -> Callable[[RawAmqp10, str], str]:
    named = {f"x-opt-{key.replace('_', '-')}": value for key, value in annotations.items()}

    def run(client: RawAmqp10, name: str) -> str:
        client.attach_sender(None, 5)
        sent = client.transfer(message(b"x", to=address.format(name), annotations=named), 5)
        error = getattr(client.outcomes(1)[sent], "error", None)
        return "" if error is None else error.condition

    return run


def _ask(method: str, path: str, body: object = None) -> Callable[[RawAmqp10, str], str]:
    def run(client: RawAmqp10, name: str) -> str:
        wanted = body
        if isinstance(body, dict):
            wanted = {
                key: value.format(name) if isinstance(value, str) else value for key, value in body.items()
            }
        management = Management(client, begin=False)
        return NOT_AUTHORIZED if management.ask(method, path.format(name), wanted).status == 403 else ""

    return run


_BOUND = {"binding_key": "k", "arguments": {}}
AMQP10 = [
    Operation(title, takes, run, NOT_AUTHORIZED)
    for title, takes, run in (
        ("target `/queues/Q`", "write on the queue, or on `amq.default`", _send_to("/queues/{}")),
        ("target `$queue/Q`", "write on the queue", _send_to("$queue/{}/k")),
        ("target `/exchanges/E/K`", "write on the exchange", _send_to("/exchanges/{}-x/k")),
        ("message `to` a queue", "write on the queue", _send_anonymously("/queues/{}")),
        ("message `to` an exchange", "write on the exchange", _send_anonymously("/exchanges/{}-x/k")),
        (
            "message with `x-opt-delivery-delay`",
            "write on the queue",
            _send_anonymously("/queues/{}", delivery_delay=60_000),
        ),
        ("transfer in a transaction", "write on the queue", _send_in_transaction),
        ("dynamic target", "configure on `amq.dyn-LINK-...`", _send_dynamically),
        (
            "dynamic source",
            "configure on `amq.dyn-LINK-...`",
            _receive_from(Source(dynamic=True, capabilities=(Symbol("temporary-queue"),))),
        ),
        (
            "source `/exchanges/E/K`",
            "read on the exchange; configure, write and read on the subscription's queue",
            _receive_from(Source("/exchanges/{}-x/k")),
        ),
        (
            "source `/exchanges/E/K`, durable",
            "read on the exchange; configure, write and read on the subscription's queue",
            _receive_from(Source("/exchanges/ours-x/k", durable=2, expiry_policy=Symbol("never"))),
        ),
        (
            "distribution-mode `copy`",
            "read on the queue, and its group",
            _receive_from(Source("/queues/{}", distribution_mode=Symbol("copy"))),
        ),
        ("source `/queues/Q`", "read on the queue, and its group", _receive_from(Source("/queues/{}"))),
        ("source `$queue/Q`", "read on the queue, and its group", _receive_from(Source("$queue/{}"))),
        (
            "link property `consumer-group`",
            "read on the queue, and its group",
            _receive_from(Source("/queues/{}"), consumer_group="g"),
        ),
        (
            "`PUT /queues/Q`",
            "configure on the queue",
            _ask("PUT", "/queues/{}-10", {"durable": False, "exclusive": True}),
        ),
        ("`DELETE /queues/Q`", "configure on the queue", _ask("DELETE", "/queues/{}-gone")),
        ("`GET /queues/Q`", "any right on the queue", _ask("GET", "/queues/{}")),
        ("`DELETE /queues/Q/messages`", "read on the queue", _ask("DELETE", "/queues/{}/messages")),
        (
            "`PUT /exchanges/E`",
            "configure on the exchange",
            _ask("PUT", "/exchanges/{}-10", {"auto_delete": True}),
        ),
        ("`DELETE /exchanges/E`", "configure on the exchange", _ask("DELETE", "/exchanges/{}-gone")),
        (
            "`POST /bindings`: the queue",
            "write on the queue, read on the exchange",
            _ask("POST", "/bindings", {"source": "ours-x", "destination_queue": "{}", **_BOUND}),
        ),
        (
            "`POST /bindings`: the exchange",
            "write on the queue, read on the exchange",
            _ask("POST", "/bindings", {"source": "{}-x", "destination_queue": OWN, **_BOUND}),
        ),
        (
            "`DELETE /bindings/...`",
            "write on the queue, read on the exchange",
            _ask("DELETE", "/bindings/src=ours-x;dstq={};key=none;args="),
        ),
    )
]

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


@dataclass(frozen=True)
class Request:
    """A call over HTTP; in its path and body `{}` stands for the name."""

    takes: str
    method: str
    path: str
    body: Any = None

    @property
    def refused(self) -> int:
        """What is told who may not: as RabbitMQ does, below its paths."""
        return 401 if self.path.startswith("/api/") and not self.path.startswith("/api/v1/") else 403

    @property
    def title(self) -> str:
        return f"`{self.method} {self.path.format('QUEUE')}`"

    def send(self, client: httpx.Client, name: str, auth: tuple[str, str] | None) -> httpx.Response:
        """Make the call as somebody; MQ-Core takes bytes, administration JSON."""
        body = None if self.body is None else _filled(self.body, name)
        return client.request(self.method, self.path.format(name), json=body, auth=auth)


def _filled(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, name) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, name) for each in value]
    return value.replace("{}", name) if isinstance(value, str) else value


READ = "read on the queue"
WRITE = "write on the queue"
CONFIGURE = "configure on the queue"
MQCORE = [
    Request(READ, "GET", "/{}"),
    Request(CONFIGURE, "PUT", "/{}"),
    Request(WRITE, "POST", "/{}/messages", "x"),
    Request(READ, "GET", "/{}/messages"),
    Request(READ, "GET", "/{}/messages?wait=10ms"),
    Request("read on the queue, and its group", "GET", "/{}/messages?group=g"),
    Request(READ, "DELETE", "/{}/messages/9"),
    Request(CONFIGURE, "DELETE", "/{}-gone"),
]
DEAD_LETTERS = {"type": "classic", "dlq": {"enabled": True, "topic": "{}"}}
ON_TOPICS = "configure and write on the queue, read on `amq.topic` and the topics, as for a binding"
CAPTURE = {"topics": ["{}/#"], "capture": True}
V1 = [
    Request(CONFIGURE, "PUT", "/api/v1/queues/{}", {}),
    Request("write on where dead letters go", "PUT", f"/api/v1/queues/{OWN}-dead", DEAD_LETTERS),
    Request("read on addresses that are not the queue's own", "PUT", f"/api/v1/queues/{OWN}-more",
            {"topics": ["$queue/{}/#"]}),
    Request(ON_TOPICS, "PUT", "/api/v1/queues/{}-captures", CAPTURE),
    Request(READ, "GET", "/api/v1/queues/{}/messages"),
    Request(WRITE, "POST", "/api/v1/queues/{}/messages", {"body": "x"}),
    Request(READ, "POST", "/api/v1/queues/{}/purge"),
    Request("read on the queue, write on the other", "POST", "/api/v1/queues/{}/move", {"to": OWN}),
    Request("write on the other", "POST", f"/api/v1/queues/{OWN}/move", {"to": "{}"}),
    Request("read on the queue, write on the other", "POST", "/api/v1/queues/{}/copy", {"to": OWN}),
    Request("write on the other", "POST", f"/api/v1/queues/{OWN}/copy", {"to": "{}"}),
    Request(READ, "POST", "/api/v1/queues/{}/redrive", {}),
    Request("read on the queue, write on the other", "POST", "/api/v1/queues/{}/redrive-dead-letters",
            {"to": OWN}),
    Request(WRITE, "DELETE", "/api/v1/queues/{}/scheduled/9"),
    Request(CONFIGURE, "PUT", "/api/v1/queues/{}/groups/made", {}),
    Request(CONFIGURE, "POST", "/api/v1/queues/{}/groups/made/reset", {}),
    Request(CONFIGURE, "DELETE", "/api/v1/queues/{}/groups/made"),
    Request(CONFIGURE, "POST", "/api/v1/queues/{}/pause", {}),
    Request(CONFIGURE, "POST", "/api/v1/queues/{}/resume", {}),
    Request(CONFIGURE, "DELETE", "/api/v1/queues/{}-gone"),
]  # fmt: skip
ARGUMENTS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "{}"}
RABBITMQ = [
    Request(CONFIGURE, "PUT", "/api/queues/%2f/{}-new", {}),
    Request("write on where dead letters go", "PUT", f"/api/queues/%2f/{OWN}-rabbit",
            {"arguments": ARGUMENTS}),
    Request(READ, "DELETE", "/api/queues/%2f/{}/contents"),
    Request(READ, "POST", "/api/queues/%2f/{}/get", {"count": 1, "ackmode": "ack_requeue_true",
            "encoding": "auto"}),
    Request("write on the exchange", "POST", "/api/exchanges/%2f/{}-x/publish",
            {"routing_key": "k", "payload": "x", "payload_encoding": "string", "properties": {}}),
    Request("configure on the exchange", "PUT", "/api/exchanges/%2f/{}-y", {"type": "fanout"}),
    Request("write on the alternate exchange", "PUT", f"/api/exchanges/%2f/{OWN}-z",
            {"type": "fanout", "arguments": {"alternate-exchange": "{}-x"}}),
    Request("write on the queue, read on the exchange", "POST", f"/api/bindings/%2f/e/{OWN}-x/q/{{}}",
            {"routing_key": "k"}),
    Request("write on the queue, read on the exchange", "POST", f"/api/bindings/%2f/e/{{}}-x/q/{OWN}",
            {"routing_key": "k"}),
    Request("configure on the exchange", "DELETE", "/api/exchanges/%2f/{}-gone"),
    Request(CONFIGURE, "DELETE", "/api/queues/%2f/{}-gone"),
]  # fmt: skip
HTTP = {"mqcore": MQCORE, "http": [*V1, *RABBITMQ]}


def _grouped(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Lists of (what it takes, the answer without that, the operation), one for each answer."""
    answers: dict[str, dict[str, list[str]]] = {}
    for takes, refused, title in rows:
        answers.setdefault(refused, {}).setdefault(takes, []).append(title)
    lines = []
    for refused, operations in answers.items():
        lines += ["", f"Otherwise {refused}:", ""]
        for takes, titles in operations.items():
            # one operation may be refused for each of two things
            once = dict.fromkeys(title.partition(": ")[0] for title in titles)
            lines.append(f"- {takes}: {'; '.join(once)}")
    return lines[1:]


def rendered_http() -> str:
    """The list of what is asked for over HTTP, as docs/security.md has it."""
    rows = [
        (request.takes, str(request.refused), request.title)
        for requests in HTTP.values()
        for request in requests
    ]
    return "\n".join(_grouped(rows))


def rendered() -> str:
    """The table and lists of AMQP and MQTT as docs/security.md has them."""
    rows = [(op.takes, f"{op.code}, channel closed", op.title) for op in AMQP]
    rows += [
        (op.takes, f"`{op.code}`: the link is refused, the message rejected, or 403", op.title)
        for op in AMQP10
    ]
    for op in [*MQTT, WILL]:
        packet = "CONNACK " if op is WILL else "PUBACK " if "PUBLISH" in op.title else "SUBACK "
        old = op.code_311 if op.code_311 == "closed" else packet + op.code_311
        rows.append((op.takes, f"{packet}{op.code}; 3.1.1: {old}", op.title))
    logins = [
        "| login refused | AMQP 0.9.1 | MQTT 5 | MQTT 3.1.1 |",
        "|---|---|---|---|",
        "| unknown or wrong password | 403, connection closed | CONNACK 0x86 | CONNACK 4 |",
        "| anonymous, where nobody is let in so | 403, connection closed | CONNACK 0x87 | CONNACK 5 |",
        "| no permissions entry for the virtual host | 530, connection closed | CONNACK 0x87 | CONNACK 5 |",
    ]
    return "\n".join([*logins, "", *_grouped(rows)])
