"""Queues and messages as MQ-Core knows them: added, fetched, deleted, by name and ID."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from broker.admin.admin import Admin
from broker.engine.late_outcome import LateOutcome
from broker.engine.traffic import PublishPlan, Source
from broker.http.problems import Problem, unavailable
from broker.http.station import Delivery, Station
from broker.http.values import UnfinishedBodies
from broker.publication import with_properties
from broker.vhosts.hub import Hub
from config import limits
from queue_manager import outcomes
from queue_manager.errors import QueueManagerError, QueueNotFound
from queue_manager.outcomes import ACCEPTED, REFUSED_IDENTITY, REFUSED_ORDER, REFUSED_SIZE, UNROUTED

_CONFLICTS: Final = (REFUSED_IDENTITY, REFUSED_ORDER)  # trying again does not help


class Queues:
    """The calls of MQ-Core's requests in one virtual host. What they do is followed up, and made durable,
    once for all requests of a loop turn.
    """

    def __init__(self, hub: Hub, admin: Admin, bodies: UnfinishedBodies) -> None:
        self.access = hub.access
        self.bodies = bodies
        self._hub = hub
        self._client = hub.client
        self._admin = admin
        self.find = hub.client.consuming.find  # raises QueueNotFound
        self.look = hub.client.queues.look
        self.delete = admin.delete
        self._plans: dict[tuple[str, bytes], PublishPlan] = {}
        self._stations: dict[tuple[str, str], Station] = {}
        self._settles = False
        self._committing: asyncio.Task[None] | None = None

    # queues

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

    # messages

    async def add(self, name: str, body: bytes, properties: bytes) -> int | None:
        """Put a message at the end of a queue; give its ID once it is durable, None where it has none yet: it
        is due later, or was taken before.

        Raises QueueNotFound, InvalidArgument, and Problem where it cannot be stored.
        """
        client = self._client
        if client.turns.uncommitted_bytes() > limits.UNCOMMITTED_BYTES_MAX:
            raise unavailable("more waits for the store than may")
        publishing = client.publishing
        plan = self._plan(name, properties)
        offset = publishing.next_offset(name)
        outcome = publishing.publish(plan, [body], self._hub.clock.now_ms())
        _check(outcome, plan.full)
        has_id = publishing.next_offset(name) == offset + 1
        if plan.durable:
            late = LateOutcome()
            client.commits.wait(late, 0)
            await self._durable()
            _check(late.outcome, ())
        else:
            self._follow_up()
        return offset if has_id else None

    async def fetch(
        self, name: str, group: str, wait_s: float = 0, visibility_ms: int | None = None
    ) -> Delivery | None:
        """Claim a message; raises QueueNotFound, InvalidArgument of a stream, AccessRefused."""
        station = self._station(name, group)
        found = next(iter(await station.fetch(1)), None)
        if found is None and wait_s:
            found = await station.wait(wait_s)
        if found is not None and visibility_ms is not None:
            self._client.settling.extend(found[1], visibility_ms, self._hub.clock.now_ms())
        self._follow_up()
        return found

    def give_back(self, name: str, group: str, found: Delivery) -> None:
        """Return a message that was fetched for somebody who is gone."""
        station = self._stations.get((name, group))
        if station is not None and not station.is_gone:
            station.give_back([found])
        self._follow_up()

    async def remove(self, name: str, group: str, offset: int) -> bool:
        """Delete a message, fetched or not; returns whether it was there. Raises QueueNotFound."""
        settling = self._client.settling
        queue = self.find(name)
        try:
            claim = await settling.find_claim(queue, group, offset)
        except QueueManagerError:
            return await self._client.messages.remove(name, offset, group=group)
        durable_group = settling.durable_group_of(claim)
        settling.ack([claim], self._hub.clock.now_ms())
        station = self._stations.get((name, group))
        if station is not None:
            station.count_credit()
        if durable_group is None:
            self._follow_up()
        else:
            settling.write_soon(durable_group)
            await self._durable()
        return True

    def _plan(self, name: str, properties: bytes) -> PublishPlan:
        """Return the plan of messages alike; raises QueueNotFound, InvalidArgument."""
        publishing = self._client.publishing
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
            self._sweep()
        if len(self._stations) >= limits.MQCORE_STATIONS_MAX:
            raise unavailable(f"messages of {limits.MQCORE_STATIONS_MAX} groups are being fetched already")
        station = self._stations[name, group] = Station(self._hub, self.find(name), group, tells_offsets=True)
        return station

    def _sweep(self) -> None:
        """Forget stations that nobody has asked for a while."""
        moment = self._hub.clock.monotonic() - limits.MQCORE_STATION_IDLE_S
        for key, station in list(self._stations.items()):
            if station.is_gone or station.is_idle_since(moment):
                station.close()
                del self._stations[key]

    # the end of a loop turn

    def _follow_up(self) -> None:
        """Deliver what can be delivered, and commit what was done, at the end of this loop turn."""
        if not self._settles:
            self._settles = True
            self._hub.loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._settles = False
        self._hub.settle_turn()

    async def _durable(self) -> None:
        """Wait for what was done so far; raises Problem (503) when that is not certain in time, and
        BrokerStopped.
        """
        if self._committing is None:
            # no task of the hub: those end before a stop confirms
            self._committing = self._hub.loop.create_task(self._commit())
        await self._committing  # shared as it is: requests are not cancelled one by one

    async def _commit(self) -> None:
        self._committing = None
        try:
            async with asyncio.timeout(limits.MQCORE_STORE_TIMEOUT_S):
                await self._client.commits.durable()
        except TimeoutError:
            raise unavailable("the store takes too long") from None


def _check(outcome: int, full: Sequence[Source]) -> None:
    """Raise Problem unless a publish was accepted; `full`: by these queues it was not."""
    if outcome == REFUSED_SIZE:
        raise Problem(413, "too_large", outcomes.REASONS[outcome])
    if outcome in _CONFLICTS:
        raise Problem(409, "precondition_failed", outcomes.REASONS[outcome])
    if outcome == UNROUTED:
        raise Problem(409, "precondition_failed", "no consumer group wants it: such messages are dropped")
    if outcome != ACCEPTED:
        raise unavailable(outcomes.reason_of(outcome, full))
