"""The names for programs that run a broker in their own process; `sluicemq` gives them out."""

from broker.app import Broker
from broker.clock import Clock
from broker.version import VERSION as __version__
from config.queue_settings import QueueSettings
from config.settings import Settings
from config.settings_loader import load_settings

__all__ = ["Broker", "Clock", "QueueSettings", "Settings", "__version__", "load_settings"]
