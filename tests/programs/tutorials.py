"""The seven tutorials of RabbitMQ as pika's users write them; AMQP_URL names the broker."""

from __future__ import annotations

import os
import time
import uuid

import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

PATIENCE_S = 10.0


def connect() -> BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))


class Received:
    """What a consumer was given."""

    def __init__(self, channel: BlockingChannel, queue: str, *, auto_ack: bool = True) -> None:
        self._channel = channel
        self.tags: list[int] = []
        self.redelivered: list[bool] = []
        self.properties: list[pika.BasicProperties] = []
        self.bodies: list[str] = []
        channel.basic_consume(queue, self._take, auto_ack=auto_ack)

    def _take(self, channel: BlockingChannel, method, properties: pika.BasicProperties, body: bytes) -> None:
        self.tags.append(method.delivery_tag)
        self.redelivered.append(method.redelivered)
        self.properties.append(properties)
        self.bodies.append(body.decode())

    def wait(self, count: int) -> Received:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.bodies) < count and time.monotonic() < deadline:
            self._channel.connection.process_data_events(0.1)
        assert len(self.bodies) == count, self.bodies
        return self


def hello_world() -> None:
    connection = connect()
    channel = connection.channel()
    channel.queue_declare("py-hello")
    channel.basic_publish("", "py-hello", "Hello World!")
    assert Received(channel, "py-hello").wait(1).bodies == ["Hello World!"]
    channel.queue_delete("py-hello")
    connection.close()


def work_queues() -> None:
    first, second = connect(), connect()
    workers = [first.channel(), second.channel()]
    workers[0].queue_declare("py-tasks", durable=True)
    taken = []
    for worker in workers:
        worker.basic_qos(prefetch_count=1)
        taken.append(Received(worker, "py-tasks", auto_ack=False))
    persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
    for number in range(3):
        workers[0].basic_publish("", "py-tasks", str(number), persistent)
    for each in taken:
        each.wait(1)  # fair dispatch: the third waits
    workers[0].basic_ack(taken[0].tags[0])
    taken[0].wait(2)
    second.close()  # the task of this one comes back to the other
    workers[0].basic_ack(taken[0].tags[1])
    taken[0].wait(3)
    assert taken[0].redelivered[-1]
    workers[0].basic_ack(taken[0].tags[2])
    workers[0].queue_delete("py-tasks")
    first.close()


def publish_subscribe() -> None:
    connection = connect()
    channel = connection.channel()
    channel.exchange_declare("py-logs", exchange_type="fanout")
    listeners = []
    for _ in range(2):
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, "py-logs")
        listeners.append(Received(channel, queue))
    channel.basic_publish("py-logs", "", "info: hello")
    assert [each.wait(1).bodies for each in listeners] == [["info: hello"]] * 2
    channel.exchange_delete("py-logs")
    connection.close()


def routing(kind: str, keys: list[str], sent: list[str], wanted: list[str]) -> None:
    connection = connect()
    channel = connection.channel()
    exchange = f"py-{kind}"
    channel.exchange_declare(exchange, exchange_type=kind)
    queue = channel.queue_declare("", exclusive=True).method.queue
    for key in keys:
        channel.queue_bind(queue, exchange, key)
    received = Received(channel, queue)
    for key in sent:
        channel.basic_publish(exchange, key, key)
    assert received.wait(len(wanted)).bodies == wanted
    channel.exchange_delete(exchange)
    connection.close()


def rpc() -> None:
    connection = connect()
    server = connection.channel()
    server.queue_declare("py-rpc")
    server.basic_qos(prefetch_count=1)

    def answer(channel: BlockingChannel, method, properties: pika.BasicProperties, body: bytes) -> None:
        told = pika.BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, str(fibonacci(int(body))), told)
        channel.basic_ack(method.delivery_tag)

    server.basic_consume("py-rpc", answer)
    client = connection.channel()
    for reply_to in (client.queue_declare("", exclusive=True).method.queue, "amq.rabbitmq.reply-to"):
        replies = Received(client, reply_to)
        correlation_id = str(uuid.uuid4())
        asked = pika.BasicProperties(reply_to=reply_to, correlation_id=correlation_id)
        client.basic_publish("", "py-rpc", "20", asked)
        assert replies.wait(1).bodies == ["6765"]
        assert replies.properties[0].correlation_id == correlation_id
    server.queue_delete("py-rpc")
    connection.close()


def fibonacci(number: int) -> int:
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


def publisher_confirms() -> None:
    connection = connect()
    channel = connection.channel()
    channel.confirm_delivery()
    queue = channel.queue_declare("", exclusive=True).method.queue
    for number in range(100):
        channel.basic_publish("", queue, str(number), mandatory=True)  # raises unless it is confirmed
    assert channel.queue_declare(queue, passive=True).method.message_count == 100
    returned = []
    try:
        channel.basic_publish("", "py-nowhere", "lost", mandatory=True)
    except pika.exceptions.UnroutableError as error:
        returned = [message.body for message in error.messages]
    assert returned == [b"lost"], "a mandatory message that no queue takes comes back"
    connection.close()


def main() -> None:
    hello_world()
    work_queues()
    publish_subscribe()
    routing("direct", ["warning", "error"], ["info", "warning", "error"], ["warning", "error"])
    routing(
        "topic",
        ["kern.*", "#.critical"],
        ["kern.info", "app.info", "app.db.critical"],
        ["kern.info", "app.db.critical"],
    )
    rpc()
    publisher_confirms()
    print("all seven")


if __name__ == "__main__":
    main()
