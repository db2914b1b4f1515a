"""Where translations of a message's properties are kept: once per template, not per message."""

from __future__ import annotations

from storage.envelope import EnvelopeTemplate


class Translations:
    """What the front-ends made of a template's properties; None: not asked for yet."""

    __slots__ = ("amqp", "group_key", "mqtt")

    def __init__(self) -> None:
        self.amqp: bytes | None = None
        self.mqtt: bytes | None = None
        self.group_key: tuple[str, bool] | None = None


def translations_of(template: EnvelopeTemplate) -> Translations:
    """The translations of a template."""
    translations = template.context
    if translations is None:
        translations = template.context = Translations()
    assert isinstance(translations, Translations)
    return translations
