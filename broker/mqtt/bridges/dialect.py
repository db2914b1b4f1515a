"""The version of MQTT that is spoken to another broker."""

from __future__ import annotations

from enum import Enum
from typing import Final

from config.bridge_settings import BridgeProtocol
from protocols.mqtt import constants as c


class Dialect(Enum):
    """A version; whether CONNECT tells that a broker comes (mosquitto's way); how it is called in logs."""

    MQTT_5 = (c.MQTT_5, False, "MQTT 5")
    BRIDGE_3_1_1 = (c.MQTT_3_1_1, True, "MQTT 3.1.1 of bridges")
    PLAIN_3_1_1 = (c.MQTT_3_1_1, False, "MQTT 3.1.1")

    def __init__(self, version: int, is_told: bool, told: str) -> None:
        self.version = version
        self.is_told = is_told
        self.told = told

    @property
    def keeps_own(self) -> bool:
        """Whether what is published does not come back, though it is subscribed to."""
        return self.version == c.MQTT_5 or self.is_told


_3_1_1: Final = (Dialect.BRIDGE_3_1_1, Dialect.PLAIN_3_1_1)
_KNOWN: Final[dict[BridgeProtocol, tuple[Dialect, ...]]] = {
    "auto": (Dialect.MQTT_5, *_3_1_1),
    "mqttv50": (Dialect.MQTT_5,),
    "mqttv311": _3_1_1,
}


class Dialects:
    """The dialects that may be spoken to one broker, of which `current` is tried next, or was found to be
    known.
    """

    def __init__(self, protocol: BridgeProtocol) -> None:
        self._left = self._all = _KNOWN[protocol]

    @property
    def current(self) -> Dialect:
        """The dialect to speak."""
        return self._left[0]

    def refused(self) -> bool:
        """Note that the other broker does not know it; returns whether there is another to be tried."""
        self._left = self._left[1:] or self._all
        return self._left is not self._all
