"""Why a call of a broker came to nothing."""

from __future__ import annotations


class Unreachable(Exception):
    """Nobody answered; the text says why."""


class Refused(Exception):
    """The broker answered that it does not do it; the text says why."""
