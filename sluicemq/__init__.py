"""SluiceMQ for programs that run a broker in their own process.

    from sluicemq import Broker

    async with Broker(storage="memory:") as broker:
        connect_to("127.0.0.1", broker.ports["amqp"])

Here and in `sluicemq.admin` and `sluicemq.errors` is what such a program may rely on. All other modules of
the installed package are the broker's own: in its repository they are folders at the root.
"""

from broker.app import Broker
from broker.clock import Clock
from broker.version import VERSION as __version__
from config.loader import load_settings
from config.queue_settings import QueueSettings
from config.settings import Settings

__all__ = ["Broker", "Clock", "QueueSettings", "Settings", "__version__", "load_settings"]
