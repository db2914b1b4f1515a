"""The settings of one worker, from those of its broker: here stands what is not for every worker.

The first worker alone has the listeners for HTTP and MQ-Core (of a node that is one of several, each has
them), bridges, links (`Broker` begins those of the first one only) and the queues of the configuration. The
storage of the first worker is what one worker alone has, so that turning workers on moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.workers.worker_place import WorkerPlace
from config.settings import ClientListenerSettings, ListenerSettings, ListenersSettings, Settings
from storage.shards import shard_settings

_OF_FIRST_ONLY: Final = ("http", "https", "mqcore", "mqcores")


def settings_of(place: WorkerPlace, settings: Settings) -> Settings:
    """Return the settings that this worker goes by."""
    update: dict[str, object] = {"listeners": _listeners_of(place, settings.listeners)}
    if not place.is_first:
        update["storage"] = shard_settings(settings.storage, place.number)
        update["mqtt"] = settings.mqtt.model_copy(update={"bridges": ()})
        update["queues"] = ()
        update["vhosts"] = tuple([vhost.model_copy(update={"queues": ()}) for vhost in settings.vhosts])
    return settings.model_copy(update=update)


def loading(place: WorkerPlace, load: Callable[[], Settings] | None) -> Callable[[], Settings] | None:
    """Return what reads the settings of this worker anew, where `load` reads those of its broker."""
    return load and (lambda: settings_of(place, load()))


def _listeners_of(place: WorkerPlace, listeners: ListenersSettings) -> ListenersSettings:
    update: dict[str, ListenerSettings | None] = {}
    for name, listener in listeners.opened().items():
        if name in _OF_FIRST_ONLY and not place.is_first and place.node is None:
            update[name] = None
        elif isinstance(listener, ClientListenerSettings) and _is_bound(name, listener, place):
            update[name] = listener.model_copy(update={"unix_socket": ""})
    return listeners.model_copy(update=update)


def _is_bound(name: str, listener: ClientListenerSettings, place: WorkerPlace) -> bool:
    """Return whether the listener's Unix socket is there already, for all workers."""
    bound = place.unix_sockets.get(name)
    return bound is not None and bound.getsockname() == listener.unix_socket
