"""broker.vhosts.vhost_directory: what a start finds of virtual hosts that administration made."""

from broker.app import Broker
from config.settings import AmqpListenerSettings, ListenersSettings, Settings, StorageSettings, VhostSettings
from queue_manager.api import QueueDeclaration, QueuePolicy, StoredVhost
from tests.memory_store import MemoryStore

POLICY = QueuePolicy(visibility_timeout_ms=30_000, message_bytes_max=1_000)


class Kept(MemoryStore):
    """What is in it is there for the next start."""

    async def close(self) -> None:
        pass


def settings_with(*vhosts: VhostSettings) -> Settings:
    return Settings(
        storage=StorageSettings(url="memory:"),
        listeners=ListenersSettings(amqp=AmqpListenerSettings(port=0)),
        vhosts=vhosts,
    )


async def test_deletion_that_was_interrupted_goes_on_at_the_next_start() -> None:
    store = Kept()
    broker = Broker(settings_with())
    await broker.start(store)
    await broker.admin.vhosts.declare("acme", max_queues=5)
    client = broker.hub.of_vhost("acme").client
    await client.queues.declare(QueueDeclaration(name="jobs", durable=True, policy=POLICY))
    broker.hub.client.vhosts.keep("acme", StoredVhost(True, 0, 5))
    await broker.hub.client.commits.durable()
    await broker.stop()

    again = Broker(settings_with())
    await again.start(store)
    assert again.hub.vhosts() == ["/"]
    assert await again.hub.client.queues.names(vhost="acme") == []
    assert again.hub.client.vhosts.kept() == {}
    await again.stop()


async def test_the_configuration_has_the_last_word_on_limits_until_it_lets_go() -> None:
    store = Kept()
    broker = Broker(settings_with())
    await broker.start(store)
    await broker.admin.vhosts.declare("acme", max_queues=5)
    await broker.stop()
    for configured, max_queues in (((VhostSettings(name="acme", max_queues=7),), 7), ((), 5)):
        broker = Broker(settings_with(*configured))
        await broker.start(store)
        view = await broker.admin.vhosts.view("acme")
        assert (view.configured, view.max_queues) == (bool(configured), max_queues)
        await broker.stop()
