"""A queue seen by a client that is not the bridge's."""

from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.staging import call
from tests.waiting import until


class Queue:
    """A durable queue, looked at over pika."""

    def __init__(self, broker: BrokerProcess, name: str, **arguments: object) -> None:
        self.broker = broker
        self.name = name
        connection = amqp.connect(broker.amqp_port)
        connection.channel().queue_declare(name, durable=True, arguments=arguments)
        amqp.close_quietly(connection)

    def options(self, **more: object) -> dict[str, str]:
        """The options of a write into it."""
        given = {"queue": self.name, "port": self.broker.amqp_port, "confirmTimeout": "20s", **more}
        return {name: str(value) for name, value in given.items()}

    def take(self, count: int, timeout_s: float = 10) -> list[amqp.Delivery]:
        """Everything in it: `count` messages, and a moment to see that there are no more."""
        connection = amqp.connect(self.broker.amqp_port)
        channel = connection.channel()
        until(lambda: amqp.count(channel, self.name) >= count, timeout_s)
        reader = amqp.Collector(channel, self.name, auto_ack=True)
        reader.wait(count)
        deliveries = list(reader.wait_quiet())
        amqp.close_quietly(connection)
        return deliveries

    def count(self) -> int:
        """How many messages can be consumed."""
        connection = amqp.connect(self.broker.amqp_port)
        found = amqp.count(connection.channel(), self.name)
        amqp.close_quietly(connection)
        return found

    def bodies(self, count: int) -> list[str]:
        """The bodies of everything in it, sorted."""
        return sorted(amqp.bodies(self.take(count)))


class Source(Queue):
    """A stream, and what was published to it."""

    def __init__(self, broker: BrokerProcess, name: str, **arguments: object) -> None:
        super().__init__(broker, name, **{"x-queue-type": "stream", **arguments})

    def publish(self, *bodies: str, **properties: object) -> None:
        """Publish messages and have them confirmed."""
        connection = amqp.connect(self.broker.amqp_port)
        channel = connection.channel()
        channel.confirm_delivery()
        amqp.publish(channel, self.name, *bodies, **properties)
        amqp.close_quietly(connection)

    def status(self, **headers: object) -> dict[str, object]:
        """Its offsets, or those of a group."""
        connection = amqp.connect(self.broker.amqp_port)
        answer = call(connection.channel(), self.name, "$stream-status", **headers)
        amqp.close_quietly(connection)
        return answer

    def wait_for(self, count: int, timeout_s: float = 20) -> None:
        """Wait until so many messages are in it: those of an epoch enter a few thousand at a time."""
        until(lambda: int(str(self.status()["next"])) >= count, timeout_s)
