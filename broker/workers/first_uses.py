"""Queues in memory that are made by their first use, where several workers may do so at the same moment.

The worker of the first use makes the queue at once, and takes publishes. Until the worker that decides about
the name says that it is to be here nobody else hears of it, and whatever else is wanted of it waits: so it
has nothing but messages when it turns out that another worker makes it, which is sent them then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from broker.engine.answers import Answer
from broker.engine.shard import Shard
from broker.workers.asking_link import Link
from broker.workers.neighbours import Neighbours, judge_of, release, reserved
from broker.workers.waits import Entry, Gate, Part
from broker.workers.worker_directory import is_own_name
from config import limits
from queue_manager.errors import QueueManagerError
from queue_manager.options import PublishOptions
from queue_manager.routing.plan import PublishPlan
from queue_manager.routing.queue_directory import TakenMessage
from queue_manager.routing.route import ForeignQueue
from storage.errors import StorageError

T = TypeVar("T")


class FirstUses:
    """The queues that were made here by their first use and may turn out to be elsewhere.

    `_waiting` are those who wait for the decision, by the name.
    """

    def __init__(self, shard: Shard, neighbours: Neighbours) -> None:
        self._shard = shard
        self._queues = shard.manager.queues
        self._neighbours = neighbours
        self._directory = neighbours.directory
        self._directory.on_made_elsewhere = self._made_elsewhere
        self._waiting: dict[str, list[Answer[None]]] = {}

    def make(self, name: str, make: Callable[[], T]) -> T:
        """Call `make`, which makes the queue of a name here if there is none; none of another worker is
        known.
        """
        directory, me = self._directory, self._neighbours.number
        if name in self._queues or is_own_name(name) or directory.is_held_back(name):
            return make()
        if judge_of(name, self._neighbours.count) == me and directory.reserve(name, me, me) == me:
            try:
                return make()
            finally:
                if name not in self._queues:
                    directory.release(name, me)
        directory.hold_back(name)
        try:
            return make()
        finally:
            if name in self._queues:
                self._ask(name)
            else:
                directory.let_out(name)

    def decided(self, name: str) -> Answer[None] | None:
        """Return what is there once it is decided where the queue of a name is; None: it is. Comes to
        WorkerLost if who decides cannot be reached.
        """
        if not self._directory.is_held_back(name):
            return None
        answer: Answer[None] = Answer()
        self._waiting.setdefault(name, []).append(answer)
        return answer

    def is_ours(self, name: str) -> None:
        """Note that the queue of a name is to be here."""
        if self._directory.is_held_back(name):
            self._directory.let_out(name)
            if name not in self._queues:  # it was deleted meanwhile
                release(self._neighbours, name, self._neighbours.number)
            self._end_waits(name)

    def _ask(self, name: str) -> None:
        reserved(self._neighbours, name, self._neighbours.number).then(partial(self._told, name))

    def _told(self, name: str, answer: Answer[int]) -> None:
        """Take the decision. Where another worker is to make the queue that is to tell so; it may come to
        nothing, too.
        """
        is_open = self._directory.is_held_back(name)
        try:
            maker = answer.result()
        except (QueueManagerError, StorageError) as error:
            if is_open:
                self._fail_waits(name, error)
                self._ask_later(name)
            return
        if maker != self._neighbours.number:
            if is_open:
                self._neighbours.reach(maker).then(partial(self._reached, name))
        elif is_open:
            self.is_ours(name)
        elif name not in self._queues:  # it is elsewhere after all
            release(self._neighbours, name, maker)

    def _reached(self, name: str, maker: Answer[Link]) -> None:
        if not self._directory.is_held_back(name):
            return
        try:
            maker.result()
        except (QueueManagerError, StorageError) as error:
            self._fail_waits(name, error)
        self._ask_later(name)

    def _ask_later(self, name: str) -> None:
        delay_s = limits.FIRST_USE_RETRY_MS / 1000
        asyncio.get_running_loop().call_later(delay_s, self._ask_again, name)

    def _ask_again(self, name: str) -> None:
        if self._directory.is_held_back(name):
            self._ask(name)

    def _end_waits(self, name: str) -> None:
        for answer in self._waiting.pop(name, ()):
            answer.resolve(None)

    def _fail_waits(self, name: str, error: QueueManagerError | StorageError) -> None:
        for answer in self._waiting.pop(name, ()):
            answer.fail(error)

    # made elsewhere

    def _made_elsewhere(self, target: ForeignQueue) -> None:
        """Give another worker's queue what the one of its name here has, and have no such queue any more.

        It goes over the link that later publishes go over, and so before them.
        """
        queue = self._queues.get(target.name)
        taken = [] if queue is None else self._queues.take_away(queue, self._shard.clock.now_ms())
        self._directory.let_out(target.name)
        if taken:
            self._send(target, taken)
        self._end_waits(target.name)

    def _send(self, target: ForeignQueue, messages: Sequence[TakenMessage]) -> None:
        """Publish messages at another worker; those that it does not take are sent again."""
        if self._directory.get(target.name) is not target:
            return  # it is gone: so would these be
        link = self._neighbours.link(target.shard)
        if not link.is_up:
            self._send_later(target, messages)
            return
        now_ms = self._shard.clock.now_ms()
        gate = Gate(_Sent(messages, partial(self._send_later, target)), {})
        plan, fields = None, None
        for index, message in enumerate(messages):
            own = _fields_of(message, now_ms)
            if plan is None or own != fields:
                plan, fields = PublishPlan(*own), own
            if plan.options.ttl_ms is not None and plan.options.ttl_ms <= 0:
                continue
            entry = Entry(gate, [index], -1)
            gate.entries.append(entry)
            first, last = link.publish(plan, [target.name], [message.body], None)
            link.wait(Part(entry, first, last, (index,)))

    def _send_later(self, target: ForeignQueue, messages: Sequence[TakenMessage]) -> None:
        delay_s = limits.FIRST_USE_RETRY_MS / 1000
        asyncio.get_running_loop().call_later(delay_s, self._send, target, messages)


class _Sent:
    """Hears which messages were not taken. Implements `broker.workers.waits.RefusalWaiter`."""

    def __init__(
        self, messages: Sequence[TakenMessage], send_later: Callable[[Sequence[TakenMessage]], None]
    ) -> None:
        self._messages = messages
        self._send_later = send_later

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        """See `RefusalWaiter`."""
        self._send_later([self._messages[token] for token in tokens])

    def committed(self, tokens: list[int]) -> None:
        """See `Waiter`."""


_Fields = tuple[str, int, bytes, bool, PublishOptions, str]


def _fields_of(message: TakenMessage, now_ms: int) -> _Fields:
    """Return the fields of the plan that a message is published by."""
    template = message.template
    options = PublishOptions(
        priority=template.priority,
        ttl_ms=message.ends_at_ms - now_ms if message.ends_at_ms else None,
        deliver_at_ms=message.due_ms,
    )
    return (
        template.topic,
        template.properties_kind,
        template.properties,
        template.persistent,
        options,
        template.exchange,
    )
