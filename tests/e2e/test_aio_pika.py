"""The same broker through aio-pika: many things at once on one event loop."""

import asyncio
from collections.abc import AsyncIterator

import aio_pika
import pytest
from aio_pika import DeliveryMode, Message
from aio_pika.exceptions import ChannelPreconditionFailed, ProbableAuthenticationError


@pytest.fixture
async def connection(broker) -> AsyncIterator[aio_pika.abc.AbstractConnection]:
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{broker.amqp_port}/", timeout=5)
    yield connection
    await asyncio.wait_for(connection.close(), 5)


async def test_wrong_password_is_refused(broker):
    with pytest.raises(ProbableAuthenticationError):
        await aio_pika.connect(f"amqp://guest:wrong@127.0.0.1:{broker.amqp_port}/", timeout=5)


async def test_concurrent_publishes_are_consumed_in_order(connection, name):
    channel = await connection.channel(publisher_confirms=True)
    queue = await channel.declare_queue(name, durable=True)
    bodies = [str(number).encode() for number in range(200)]
    await asyncio.gather(
        *(
            channel.default_exchange.publish(Message(body, delivery_mode=DeliveryMode.PERSISTENT), name)
            for body in bodies
        )
    )
    received = []
    async with queue.iterator() as messages:
        async for message in messages:
            async with message.process():
                received.append(message.body)
            if len(received) == len(bodies):
                break
    assert received == bodies
    assert (await channel.declare_queue(name, passive=True)).declaration_result.message_count == 0
    await queue.delete(if_unused=False)


async def test_failed_processing_redelivers_until_it_succeeds(connection, name):
    channel = await connection.channel()
    queue = await channel.declare_queue(name, durable=True)
    await channel.default_exchange.publish(Message(b"flaky", headers={"n": 1}), name)
    attempts = []
    async with queue.iterator() as messages:
        async for message in messages:
            attempts.append(message.redelivered)
            try:
                async with message.process(requeue=True):
                    if len(attempts) < 3:
                        raise RuntimeError("try again")
            except RuntimeError:
                continue
            break
    assert attempts == [False, True, True]
    await queue.delete(if_unused=False)


async def test_request_is_answered_through_reply_to(connection, name):
    """The RPC tutorial: a reply queue of the client's own and a correlation id."""
    channel = await connection.channel()
    requests = await channel.declare_queue(name, durable=True)
    replies = await channel.declare_queue(exclusive=True)

    async def serve(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        async with message.process():
            answer = Message(message.body.upper(), correlation_id=message.correlation_id)
            await channel.default_exchange.publish(answer, message.reply_to)

    await requests.consume(serve)
    answered: asyncio.Queue = asyncio.Queue()
    await replies.consume(answered.put, no_ack=True)
    for number in range(20):
        request = Message(b"ping", correlation_id=str(number), reply_to=replies.name)
        await channel.default_exchange.publish(request, name)
    answers = [await asyncio.wait_for(answered.get(), 5) for _ in range(20)]
    assert [(answer.body, answer.correlation_id) for answer in answers] == [
        (b"PING", str(n)) for n in range(20)
    ]
    await requests.delete(if_unused=False)


async def test_workers_on_channels_of_their_own_share_the_messages(connection, name):
    publishing = await connection.channel()
    queue = await publishing.declare_queue(name, durable=True)
    done: list[tuple[int, bytes]] = []
    all_done = asyncio.Event()

    async def work(worker: int) -> None:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=5)
        own = await channel.get_queue(name)

        async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            async with message.process():
                done.append((worker, message.body))
            if len(done) == 100:
                all_done.set()

        await own.consume(on_message)

    await asyncio.gather(*(work(number) for number in range(4)))
    await asyncio.gather(
        *(publishing.default_exchange.publish(Message(b"%d" % number), name) for number in range(100))
    )
    async with asyncio.timeout(5):
        await all_done.wait()
    assert len({body for _, body in done}) == 100
    assert len({worker for worker, _ in done}) == 4
    await queue.delete(if_unused=False)


async def test_channel_error_leaves_the_connection_open(connection, name):
    channel = await connection.channel()
    await channel.declare_queue(name, durable=True)
    other = await connection.channel()
    with pytest.raises(ChannelPreconditionFailed):
        await other.declare_queue(name, durable=False)
    await (await channel.get_queue(name)).delete(if_unused=False)


async def test_robust_connection_publishes_and_consumes(broker, name):
    connection = await aio_pika.connect_robust(f"amqp://guest:guest@127.0.0.1:{broker.amqp_port}/", timeout=5)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(name, auto_delete=True)
        await channel.default_exchange.publish(Message(b"x"), name)
        message = await queue.get(timeout=5)
        await message.ack()
        await queue.delete(if_unused=False)
