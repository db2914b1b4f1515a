"""One program per adapter of pika: publish ten messages, consume them, acknowledge, close.

`python -m tests.programs.pika_adapters ADAPTER PORT QUEUE` prints what was consumed.
"""

import functools
import sys

COUNT = 10


class Session:
    """What a program does once its connection is open, for the adapters with callbacks."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.received: list[str] = []

    def opened(self, connection):
        connection.channel(on_open_callback=self.with_channel)

    def with_channel(self, channel):
        self.channel = channel
        channel.queue_declare(self.queue, durable=True, callback=self.declared)

    def declared(self, frame):
        self.channel.confirm_delivery(self.confirmed, callback=self.publish)

    def publish(self, frame):
        import pika

        for number in range(COUNT):
            self.channel.basic_publish("", self.queue, str(number), pika.BasicProperties(delivery_mode=2))

    def confirmed(self, frame):
        if not self.received and not self.channel.consumer_tags:
            self.channel.basic_consume(self.queue, self.take)

    def take(self, channel, method, properties, body):
        self.received.append(body.decode())
        channel.basic_ack(method.delivery_tag)
        if len(self.received) == COUNT:
            channel.queue_delete(self.queue, callback=lambda frame: channel.connection.close())


def parameters(port):
    import pika

    return pika.ConnectionParameters("127.0.0.1", port, heartbeat=30)


def failed(connection, error):
    sys.exit(f"not opened: {error!r}")


def with_select(port, session):
    from pika import SelectConnection

    connection = SelectConnection(
        parameters(port),
        on_open_callback=session.opened,
        on_open_error_callback=failed,
        on_close_callback=lambda connection, error: connection.ioloop.stop(),
    )
    connection.ioloop.start()


def with_asyncio(port, session):
    import asyncio

    from pika.adapters.asyncio_connection import AsyncioConnection

    loop = asyncio.new_event_loop()
    AsyncioConnection(
        parameters(port),
        on_open_callback=session.opened,
        on_open_error_callback=failed,
        on_close_callback=lambda connection, error: loop.stop(),
        custom_ioloop=loop,
    )
    loop.run_forever()


def with_gevent(port, session):
    from gevent import monkey

    monkey.patch_all()
    from pika.adapters.gevent_connection import GeventConnection

    connection = GeventConnection(
        parameters(port),
        on_open_callback=session.opened,
        on_open_error_callback=failed,
        on_close_callback=lambda connection, error: connection.ioloop.stop(),
    )
    connection.ioloop.start()


def with_twisted(port, session):
    from pika.adapters.twisted_connection import TwistedProtocolConnection
    from twisted.internet import defer, protocol, reactor

    async def talk(connection):
        import pika

        await connection.ready
        channel = await connection.channel()
        await channel.queue_declare(session.queue, durable=True)
        await channel.confirm_delivery()
        for number in range(COUNT):
            properties = pika.BasicProperties(delivery_mode=2)
            await channel.basic_publish("", session.queue, str(number), properties)
        deliveries, _ = await channel.basic_consume(session.queue)
        while len(session.received) < COUNT:
            _, method, _, body = await deliveries.get()
            session.received.append(body.decode())
            channel.basic_ack(method.delivery_tag)
        await channel.queue_delete(session.queue)
        await connection.close()

    def end(result):
        if result is not None:
            print(result, file=sys.stderr)
        reactor.stop()  # type: ignore[misc]

    creator = protocol.ClientCreator(reactor, TwistedProtocolConnection, parameters(port))
    connecting = creator.connectTCP("127.0.0.1", port)
    connecting.addCallback(lambda connection: defer.ensureDeferred(talk(connection)))
    connecting.addBoth(end)
    reactor.run()  # type: ignore[misc]


def with_blocking(port, session):
    import pika

    with pika.BlockingConnection(parameters(port)) as connection:
        channel = connection.channel()
        channel.queue_declare(session.queue, durable=True)
        channel.confirm_delivery()
        for number in range(COUNT):
            channel.basic_publish("", session.queue, str(number), pika.BasicProperties(delivery_mode=2))
        for method, _, body in channel.consume(session.queue, inactivity_timeout=5):
            if method is None:
                break
            session.received.append(body.decode())
            channel.basic_ack(method.delivery_tag)
            if len(session.received) == COUNT:
                break
        channel.cancel()
        channel.queue_delete(session.queue)


ADAPTERS = {
    "asyncio": with_asyncio,
    "blocking": with_blocking,
    "gevent": with_gevent,
    "select": with_select,
    "twisted": with_twisted,
}

if __name__ == "__main__":
    session = Session(sys.argv[3])
    functools.partial(ADAPTERS[sys.argv[1]], int(sys.argv[2]), session)()
    print(" ".join(session.received))
