"""The key of a message, which the front-ends know how to find."""

from __future__ import annotations

from collections.abc import Callable

from storage.envelope import EnvelopeTemplate

GroupKeyOf = Callable[[EnvelopeTemplate], tuple[str, bool]]
"""Gives the key of a message group, "" for none, and whether this message closes the group."""


def no_key(template: EnvelopeTemplate) -> tuple[str, bool]:
    """Return no key, for queue managers without a front-end."""
    return "", False
