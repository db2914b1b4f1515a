"""What clients saw while a broker was killed again and again, and the accounts drawn up from it."""

import threading
import time
from collections import defaultdict
from typing import NamedTuple

SURELY_DURABLE_S = 0.5  # an ack sent this long before a kill has been stored


class Delivery(NamedTuple):
    """One delivery as a consumer received it; `at` in monotonic seconds."""

    group: str
    consumer: str
    life: int
    at: float
    body: str
    redelivered: bool


class Ledger:
    """Written by all client threads, read when they have ended. Bodies are `<publisher>-<number>`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sent: set[str] = set()
        self.confirmed: set[str] = set()
        self.refused: list[str] = []
        self.deliveries: list[Delivery] = []
        self.acked_at: dict[tuple[str, str], tuple[int, float]] = {}
        self.killed_at: dict[int, float] = {}
        self.failures: list[str] = []

    def send(self, bodies: list[str]) -> None:
        with self._lock:
            self.sent.update(bodies)

    def confirm(self, bodies: list[str]) -> None:
        with self._lock:
            self.confirmed.update(bodies)

    def deliver(self, delivery: Delivery) -> None:
        with self._lock:
            self.deliveries.append(delivery)

    def ack(self, group: str, body: str, life: int) -> None:
        """To be called once the ack is sent; the first counts."""
        with self._lock:
            self.acked_at.setdefault((group, body), (life, time.monotonic()))

    def fail(self, reason: str) -> None:
        """Something no client should ever see; fails the test."""
        with self._lock:
            self.failures.append(reason)

    def received(self, group: str) -> set[str]:
        with self._lock:
            return {delivery.body for delivery in self.deliveries if delivery.group == group}

    def lost(self, group: str) -> set[str]:
        """Confirmed to a publisher, never seen by the group."""
        return self.confirmed - self.received(group)

    def invented(self) -> set[str]:
        """Delivered, never sent."""
        return {delivery.body for delivery in self.deliveries} - self.sent

    def delivered_after_ack(self) -> list[Delivery]:
        """Deliveries of what its group had acked so long before the kill that the ack was durable."""
        return [
            delivery
            for delivery in self.deliveries
            if self.surely_acked(delivery.group, delivery.body, delivery.life)
        ]

    def surely_acked(self, group: str, body: str, life: int) -> bool:
        """Whether a group acked a message in a life before this one, long enough before its end."""
        if (group, body) not in self.acked_at:
            return False
        acked_in, at = self.acked_at[group, body]
        return acked_in < life and at < self.killed_at[acked_in] - SURELY_DURABLE_S

    def is_surely_settled(self) -> bool:
        """Whether each group acked all that it was given, and so long ago that it would survive a kill."""
        with self._lock:
            sure_before = time.monotonic() - SURELY_DURABLE_S
            acked = {key for key, (_, at) in self.acked_at.items() if at < sure_before}
            return acked >= {(delivery.group, delivery.body) for delivery in self.deliveries}

    def twice_in_a_life(self) -> list[tuple[Delivery, Delivery]]:
        """No lease ends and no consumer leaves within a life, so a group sees each message once in it."""
        seen: dict[tuple[str, int, str], Delivery] = {}
        twice = []
        for delivery in self.deliveries:
            first = seen.setdefault((delivery.group, delivery.life, delivery.body), delivery)
            if first is not delivery:
                twice.append((first, delivery))
        return twice

    def out_of_order(self) -> list[tuple[Delivery, Delivery]]:
        """Within a life each consumer sees every publisher's messages in the order they were sent."""
        last: dict[tuple[str, int, str], Delivery] = {}
        wrong = []
        for delivery in self.deliveries:
            publisher, number = delivery.body.rsplit("-", 1)
            before = last.get((delivery.consumer, delivery.life, publisher))
            if before is not None and int(number) <= int(before.body.rsplit("-", 1)[1]):
                wrong.append((before, delivery))
            last[delivery.consumer, delivery.life, publisher] = delivery
        return wrong

    def first_deliveries_out_of_order(self, group: str) -> list[tuple[str, str]]:
        """For a group of one consumer: over all lives, messages are first seen in the order sent."""
        highest: dict[str, int] = defaultdict(lambda: -1)
        seen: set[str] = set()
        wrong = []
        for delivery in self.deliveries:
            if delivery.group != group or delivery.body in seen:
                continue
            seen.add(delivery.body)
            publisher, number = delivery.body.rsplit("-", 1)
            if int(number) < highest[publisher]:
                wrong.append((f"{publisher}-{highest[publisher]}", delivery.body))
            highest[publisher] = max(highest[publisher], int(number))
        return wrong

    def not_flagged(self) -> list[Delivery]:
        """Seen in an earlier life, long enough before its kill that the claim was durable: redelivered."""
        first: dict[tuple[str, str], Delivery] = {}
        unflagged = []
        for delivery in self.deliveries:
            before = first.setdefault((delivery.group, delivery.body), delivery)
            sure = before.life < delivery.life and before.at < self.killed_at[before.life] - SURELY_DURABLE_S
            if sure and not delivery.redelivered:
                unflagged.append(delivery)
        return unflagged

    def summary(self) -> str:
        redelivered = sum(delivery.redelivered for delivery in self.deliveries)
        return (
            f"{len(self.killed_at)} kills: {len(self.sent)} sent, {len(self.confirmed)} confirmed, "
            f"{len(self.deliveries)} deliveries, {redelivered} redelivered, {len(self.acked_at)} acked"
        )
