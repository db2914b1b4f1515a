"""The wills of MQTT clients: those of clients that are there, and those that wait."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from tests.whole.sessions import ENDED_S, Session


@dataclass
class Will:
    """What a client asks for, with the body it was given."""

    topic: str
    body: str
    qos: int = 0
    retain: bool = False
    delay_s: int = 0


@dataclass
class Waiting:
    """A will that is published at some moment between these two."""

    will: Will
    delay_s: float
    low: float
    high: float


@dataclass
class Wills:
    connected: dict[str, Will] = field(default_factory=dict)
    waiting: dict[str, Waiting] = field(default_factory=dict)

    def leave(self, client: str, session: Session | None) -> Will | None:
        """A connection ended without a farewell: the will that is published now. `session`: what goes on."""
        will = self.connected.pop(client, None)
        if will is None:
            return None
        delay_s = 0 if session is None else min(will.delay_s, session.expiry_s)
        if not delay_s:
            return will
        now = time.time()
        self.waiting[client] = Waiting(will, delay_s, now - ENDED_S + delay_s, now + delay_s)
        return None

    def back(self, client: str, *, resumed: bool) -> Will | None:
        """The client is there again: the will that is published as its session ended."""
        waiting = self.waiting.pop(client, None)
        return None if waiting is None or resumed else waiting.will

    def restarted(self, down: float) -> None:
        """The broker is there again, since `down` it was not: the time of who was connected begins now."""
        now = time.time()
        for waiting in self.waiting.values():
            waiting.high = now + waiting.delay_s if waiting.high > down else max(waiting.high, now)

    @staticmethod
    def asked(will: dict[str, Any] | None, body: str) -> Will | None:
        return None if will is None else Will(body=body, **will)
