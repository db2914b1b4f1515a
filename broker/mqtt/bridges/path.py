"""The bridges a message has come over: a user property for each, so that it does not go in circles."""

from __future__ import annotations

from typing import Final

from protocols.mqtt.constants import PUBLISH
from protocols.mqtt.properties import decode_properties

PROPERTY: Final = "x-bridged-by"
_USER_PROPERTY: Final = b"\x26"
_NAME: Final = len(PROPERTY).to_bytes(2, "big") + PROPERTY.encode()


def has_passed(properties: bytes, bridge: str) -> bool:
    """Whether a message of this property block has come over a bridge."""
    if PROPERTY.encode() not in properties:
        return False
    return (PROPERTY, bridge) in decode_properties(properties, PUBLISH).user_properties


def with_bridge(properties: bytes, bridge: str) -> bytes:
    """The block of a message that goes over a bridge."""
    value = bridge.encode()
    return properties + _USER_PROPERTY + _NAME + len(value).to_bytes(2, "big") + value
