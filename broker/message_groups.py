"""The key of a message group in a message's properties, whatever protocol it came by.

The same names count over AMQP (headers) and MQTT (user properties), as translated messages have them too; the
first that a message has in the order of `KEY_NAMES`. Numbers count as their digits.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from broker.properties import Translations, translations_of
from config import limits
from protocols.amqp091.content import decode_headers
from protocols.mqtt import constants as mqtt
from protocols.mqtt.properties import decode_properties
from queue_manager.manager import QueueManager
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_MQTT, EnvelopeTemplate

KEY_NAMES: Final = ("JMSXGroupID", "x-group-id", "group-id")
SEQUENCE_NAMES: Final = ("JMSXGroupSeq", "group-sequence")
CLOSES: Final = "-1"

_KEYS_AS_BYTES: Final = tuple(name.encode() for name in KEY_NAMES)
_NO_KEY: Final = ("", False)


def install(manager: QueueManager) -> None:
    """Let the queue manager find the keys of messages so."""
    manager.group_key_of = group_key


def group_key(template: EnvelopeTemplate) -> tuple[str, bool]:
    """The key ("": none) and whether the message closes its group; worked out once."""
    translations: Translations = translations_of(template)
    if translations.group_key is None:
        translations.group_key = _read(template.properties_kind, template.properties)
    return translations.group_key


def _read(kind: int, properties: bytes) -> tuple[str, bool]:
    if not any(name in properties for name in _KEYS_AS_BYTES):
        return _NO_KEY
    pairs: list[tuple[str, Any]] = []
    if kind == PROPERTIES_AMQP:
        pairs = decode_headers(properties)
    elif kind == PROPERTIES_MQTT:
        pairs = list(decode_properties(properties, mqtt.PUBLISH).user_properties)
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in KEY_NAMES or name in SEQUENCE_NAMES:
            found.setdefault(name, _text(value))
    key = _first(found, KEY_NAMES)
    encoded = key.encode(errors="surrogatepass")
    if len(encoded) > limits.MESSAGE_GROUP_KEY_BYTES_MAX:
        key = sha256(encoded).hexdigest()
    return key, bool(key) and _first(found, SEQUENCE_NAMES) == CLOSES


def _first(found: dict[str, str], names: tuple[str, ...]) -> str:
    return next((found[name] for name in names if found.get(name)), "")


def _text(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
