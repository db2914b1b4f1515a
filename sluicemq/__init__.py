"""SluiceMQ for programs that run a broker in their own process.

    from sluicemq import Broker

    async with Broker(storage="memory:") as broker:
        connect_to("127.0.0.1", broker.ports["amqp"])

Here and in `sluicemq.admin` and `sluicemq.errors` is what such a program may rely on. All other modules of
the installed package are the broker's own: in its repository they are folders at the root.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluicemq.embedded import Broker, Clock, QueueSettings, Settings, __version__, load_settings

__all__ = ["Broker", "Clock", "QueueSettings", "Settings", "__version__", "load_settings"]


def __getattr__(name: str) -> object:
    """Import a name of `__all__`, with all that it needs: commands that only ask a broker do without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sluicemq import embedded

    return getattr(embedded, name)
