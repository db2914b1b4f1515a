"""broker.admin.reloading: which keys changed, and which wait for a restart."""

from broker.admin.reloading import changed_keys, merged, needs_restart
from config.access_settings import AccessSettings
from config.queue_settings import QueueSettings
from config.settings import (
    AmqpsListenerSettings,
    ListenersSettings,
    LogSettings,
    QueueManagerSettings,
    Settings,
    StorageSettings,
    TlsSettings,
)


def settings(**changed):
    return Settings(**changed)


def amqps(cert, port=5671):
    return ListenersSettings(amqps=AmqpsListenerSettings(port=port, tls=TlsSettings(cert=cert, key="k")))


def test_keys_that_differ_are_named_as_the_documentation_does():
    old, new = settings(), settings(log=LogSettings(level="debug"), access=AccessSettings(anonymous="never"))
    assert changed_keys(old, new) == ["access.anonymous", "log.level"]
    assert changed_keys(old, settings()) == []
    waiting = settings(queue_manager=QueueManagerSettings(visibility_timeout_ms=1))
    assert changed_keys(old, waiting) == ["queue_manager.visibility_timeout"]


def test_what_takes_effect_at_once_needs_no_restart():
    for key in ("access.users_file", "log.level", "queues", "listeners.amqps.tls.cert"):
        assert not needs_restart(key)
    for key in ("storage.url", "listeners.amqps.port", "log.format", "queue_manager.auto_create"):
        assert needs_restart(key)


def test_only_what_takes_effect_at_once_is_taken():
    old = settings(listeners=amqps("old.crt"))
    new = settings(
        listeners=amqps("new.crt", port=1),
        log=LogSettings(level="error", format="json"),
        queues=(QueueSettings(name="q"),),
        storage=StorageSettings(url="memory:"),
        queue_manager=QueueManagerSettings(auto_create=False),
    )
    found = merged(old, new)
    assert found.listeners.amqps.tls.cert == "new.crt"
    assert found.listeners.amqps.port == 5671
    assert (found.log.level, found.log.format) == ("error", "text")
    assert found.queues == new.queues
    assert found.storage == old.storage
    assert found.queue_manager == old.queue_manager


def test_a_listener_that_is_not_open_waits_for_a_restart():
    found = merged(settings(), settings(listeners=amqps("new.crt")))
    assert found.listeners.amqps is None
