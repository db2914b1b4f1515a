"""Queues and messages as MQ-Core knows them: added, fetched, deleted, by name and ID."""

from __future__ import annotations

from typing import Final

from broker.admin.admin import Admin
from broker.engine.traffic import PublishPlan, Source
from broker.http.mqcore.journal import Journal, unavailable
from broker.http.problems import Problem
from broker.http.station import Delivery, Station
from broker.publication import with_properties
from broker.vhosts.hub import Hub
from config import limits
from queue_manager import outcomes
from queue_manager.api import OPERATOR, QueueStatus
from queue_manager.errors import QueueManagerError, QueueNotFound
from queue_manager.outcomes import ACCEPTED, REFUSED_IDENTITY, REFUSED_ORDER, REFUSED_SIZE, UNROUTED

_CONFLICTS: Final = (REFUSED_IDENTITY, REFUSED_ORDER)  # trying again does not help


class Queues:
    """What MQ-Core's requests ask for."""

    def __init__(self, hub: Hub, admin: Admin) -> None:
        self._hub = hub
        self._admin = admin
        self.journal = Journal(hub)
        self._plans: dict[tuple[str, bytes], PublishPlan] = {}
        self._stations: dict[tuple[str, str], Station] = {}

    # queues

    def find(self, name: str) -> Source:
        """The queue; raises QueueNotFound."""
        return self._hub.client.consuming.find(name)

    async def look(self, name: str) -> QueueStatus:
        """What is in the queue; raises QueueNotFound."""
        return await self._hub.client.queues.look(name, OPERATOR)

    async def create(self, name: str) -> bool:
        """Make a durable queue, unless one of that name is there; whether it is new. Raises
        InvalidAddress.
        """
        try:
            self.find(name)
        except QueueNotFound:
            await self._admin.declare(name)
            return True
        return False

    async def delete(self, name: str) -> None:
        """Delete a queue with its messages; raises QueueNotFound."""
        await self._admin.delete(name)

    # messages

    async def add(self, name: str, bodies: list[bytes], properties: bytes) -> list[int]:
        """Put messages at the end of a queue; give their IDs once they are durable, none where they have none
        yet: those that are due later, or were taken before.

        Raises QueueNotFound, InvalidArgument, and Problem where they cannot be stored.
        """
        self.journal.check_room()
        publishing = self._hub.client.publishing
        plan = self._plan(name, properties)
        first = publishing.next_offset(name)
        outcome = publishing.publish(plan, bodies, self._hub.clock.now_ms())
        if outcome == REFUSED_SIZE:
            raise Problem(413, "too_large", outcomes.REASONS[outcome])
        if outcome in _CONFLICTS:
            raise Problem(409, "precondition_failed", outcomes.REASONS[outcome])
        if outcome == UNROUTED:
            raise Problem(409, "precondition_failed", "no consumer group wants it: such messages are dropped")
        if outcome != ACCEPTED:
            raise unavailable(outcomes.REASONS[outcome])
        has_ids = publishing.next_offset(name) == first + len(bodies)
        if plan.durable:
            await self.journal.durable()
        else:
            self.journal.follow_up()
        return list(range(first, first + len(bodies))) if has_ids else []

    async def fetch(
        self, name: str, group: str, count: int, wait_s: float, visibility_ms: int | None
    ) -> list[Delivery]:
        """Claim messages; raises QueueNotFound, InvalidArgument of a stream, AccessRefused."""
        station = self._station(name, group)
        found = await station.fetch(count)
        if not found and wait_s:
            found = await station.wait(count, wait_s)
        if visibility_ms is not None:
            now_ms = self._hub.clock.now_ms()
            for _, claim in found:
                self._hub.client.settling.extend(claim, visibility_ms, now_ms)
        self.journal.follow_up()
        return found

    def give_back(self, name: str, group: str, found: list[Delivery]) -> None:
        """Return messages that were fetched for somebody who is gone."""
        station = self._stations.get((name, group))
        if station is not None and not station.is_gone:
            station.give_back(found)
        self.journal.follow_up()

    async def remove(self, name: str, group: str, offset: int) -> bool:
        """Be done with a message, fetched or not; whether it was there. Raises QueueNotFound."""
        settling = self._hub.client.settling
        queue = self.find(name)
        try:
            claim = settling.find_claim(queue, group, offset)
        except QueueManagerError:
            return await self._hub.client.messages.remove(name, offset, group=group)
        durable_group = settling.durable_group_of(claim)
        settling.ack([claim], self._hub.clock.now_ms())
        self._settled(name, group)
        if durable_group is None:
            self.journal.follow_up()
        else:
            settling.write_soon(durable_group)
            await self.journal.durable()
        return True

    def set_visibility(self, name: str, group: str, offset: int, visibility_ms: int) -> None:
        """Give a fetched message a new lease from now; 0 returns it to its place at once.

        Raises QueueNotFound, GroupNotFound, InvalidAddress where it is not fetched.
        """
        settling = self._hub.client.settling
        claim = settling.find_claim(self.find(name), group, offset)
        now_ms = self._hub.clock.now_ms()
        if visibility_ms:
            settling.extend(claim, visibility_ms, now_ms)
        else:
            settling.requeue([claim], now_ms, delay_ms=0)
            self._settled(name, group)
        self.journal.follow_up()

    def _settled(self, name: str, group: str) -> None:
        station = self._stations.get((name, group))
        if station is not None:
            station.settled()

    def _plan(self, name: str, properties: bytes) -> PublishPlan:
        """The plan of messages alike; raises QueueNotFound, InvalidArgument."""
        publishing = self._hub.client.publishing
        plan = self._plans.get((name, properties))
        if plan is not None and publishing.is_current(plan):
            return plan
        if len(self._plans) >= limits.MQCORE_PLANS_MAX:
            self._plans.clear()
        targets = publishing.named(name)
        if not targets:
            raise QueueNotFound(f"no queue {name!r}")
        seen, options = with_properties.take_apart(properties)
        plan = with_properties.plan_of(publishing, "", name, seen, options, persistent=True)
        publishing.aim(plan, targets)
        self._plans[name, properties] = plan
        return plan

    def _station(self, name: str, group: str) -> Station:
        station = self._stations.get((name, group))
        if station is not None and not station.is_gone:
            return station
        if len(self._stations) >= limits.MQCORE_STATIONS_MAX:
            self.sweep()
        if len(self._stations) >= limits.MQCORE_STATIONS_MAX:
            raise unavailable(f"messages of {limits.MQCORE_STATIONS_MAX} groups are being fetched already")
        station = self._stations[name, group] = Station(self._hub, self.find(name), group, tells_offsets=True)
        return station

    def sweep(self) -> None:
        """Forget stations that nobody has asked for a while."""
        moment = self._hub.clock.monotonic() - limits.MQCORE_STATION_IDLE_S
        for key, station in list(self._stations.items()):
            if station.is_gone or station.is_idle_since(moment):
                station.close()
                del self._stations[key]
