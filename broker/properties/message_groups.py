"""The key of a message group in a message's properties, whatever protocol it came by.

The same names count over AMQP (headers) and MQTT (user properties), as translated messages have them too; the
first that a message has in the order of `KEY_NAMES`. Numbers count as their digits.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from broker.properties import templates
from broker.properties.neutral_model import HeaderValue
from config import limits
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_MQTT, EnvelopeTemplate

KEY_NAMES: Final = ("JMSXGroupID", "x-group-id", "group-id")
SEQUENCE_NAMES: Final = ("JMSXGroupSeq", "group-sequence")
CLOSES: Final = "-1"

# kinds where only headers tell the key, as texts: most properties have none of these names in them
_KEYED_BY_HEADER: Final = frozenset((PROPERTIES_AMQP, PROPERTIES_MQTT))
_KEYS_AS_BYTES: Final = tuple(name.encode() for name in KEY_NAMES)
_MADE: Final = "message group"
_NO_KEY: Final = ("", False)


def group_key(template: EnvelopeTemplate) -> tuple[str, bool]:
    """Return the key ("": none) and whether the message closes its group; worked out once."""
    made = templates.made_of(template)
    found: tuple[str, bool] | None = made.get(_MADE)
    if found is None:
        found = made[_MADE] = _read(template)
    return found


def _read(template: EnvelopeTemplate) -> tuple[str, bool]:
    block = template.properties
    if template.properties_kind in _KEYED_BY_HEADER and not any(name in block for name in _KEYS_AS_BYTES):
        return _NO_KEY
    properties = templates.read(template)
    found: dict[str, str] = {}
    if properties.group_id is not None and "group_id" not in properties.implied:
        found[KEY_NAMES[0]] = _text(properties.group_id)
        found[SEQUENCE_NAMES[0]] = _text(properties.group_sequence)
    for name, value in properties.headers:
        if name in KEY_NAMES or name in SEQUENCE_NAMES:
            found.setdefault(name, _text(value))
    key = _first(found, KEY_NAMES)
    encoded = key.encode(errors="surrogatepass")
    if len(encoded) > limits.MESSAGE_GROUP_KEY_BYTES_MAX:
        key = sha256(encoded).hexdigest()
    return key, bool(key) and _first(found, SEQUENCE_NAMES) == CLOSES


def _first(found: dict[str, str], names: tuple[str, ...]) -> str:
    return next((found[name] for name in names if found.get(name)), "")


def _text(value: HeaderValue) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
