"""One session: its subscriptions, its place in their logs, and what it was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass, field
from typing import Protocol

from config import limits
from queue_manager.address import DEFAULT_VHOST
from queue_manager.quota_accounts import SUBSCRIPTIONS, counted_user
from queue_manager.sessions.blocks import END
from queue_manager.sessions.common import Bounds, Common, Losses
from queue_manager.sessions.filter_log import ENDED, OWN, FilterLog
from queue_manager.sessions.giving_way import GivingWay
from queue_manager.sessions.merging import Matched, Matching, Merged, merge
from queue_manager.sessions.sent import Received, Unfinished
from queue_manager.sessions.session_subscription import SessionSubscription
from queue_manager.shard.commit import Commit, OnceDurable
from queue_manager.shard.context import Context
from storage.envelope import expires_at_ms
from storage.records import CONNECTED, NEVER_S, SessionValue, session, session_progress
from storage.records.filter_log_entries import RETAIN
from storage.records.special_codecs import RECEIVED_QOS_2, Sent


class Delivery:
    """A message for the client: with which QoS and identifiers, and whether it was sent before."""

    __slots__ = ("identifiers", "is_repeated", "merged", "packet_id", "qos", "retain")

    def __init__(
        self, merged: Merged, qos: int, retain: bool, packet_id: int, *, is_repeated: bool = False
    ) -> None:
        self.merged = merged
        self.qos = qos
        self.retain = retain
        self.packet_id = packet_id
        self.is_repeated = is_repeated
        self.identifiers = [s.options.identifier for s in merged.subscriptions if s.options.identifier]


class Link(Protocol):
    """The connection of a session."""

    def room(self) -> int:
        """Return how many more messages the client takes now; what is sent again comes first."""

    def take_packet_id(self) -> int:
        """Take an identifier that is not in use."""

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Send messages."""

    def release(self, packet_ids: list[int]) -> None:
        """Send PUBREL."""

    def forget(self, packet_ids: list[int]) -> None:
        """Forget these: they are not in use any more."""


@dataclass(eq=False, repr=False, slots=True)
class Session:
    """The state of a client that outlives a connection. `read_to`: what lies below in its logs was given to a
    client once.

    It is what its connection sees, so it has all that a client says and is sent; what is beside that has
    objects of its own (`Unfinished`, `Received`, `GivingWay`, the logs). `link` is its connection, None while
    it is away. `ended_at_ms`: since when it is away. `_key` is what it is stored under.
    Implements `queue_manager.sessions.session_subscription.Subscriber`.
    """

    common: InitVar[Common]
    client_id: str
    _key: bytes
    value: InitVar[SessionValue]
    read_to: int
    sent: InitVar[Iterable[Sent]] = ()
    _common: Common = field(init=False)
    _bounds: Bounds = field(default=Bounds(), init=False)
    _bounds_version: int = field(default=-1, init=False)  # of what `_bounds` is worked out from
    _context: Context = field(init=False)
    _giving_way: GivingWay = field(init=False)
    _losses: Losses = field(init=False)
    number: int = field(init=False)
    expiry_s: int = field(init=False)
    ended_at_ms: int = field(init=False)
    user: str = field(init=False)
    vhost: str = field(default=DEFAULT_VHOST, init=False)
    unfinished: Unfinished = field(init=False)
    received: Received = field(init=False)
    subscriptions: dict[str, SessionSubscription] = field(default_factory=dict, init=False)
    _beside_count: int = field(default=0, init=False)  # of the subscriptions, those without a log
    _ended: dict[str, SessionSubscription] = field(default_factory=dict, init=False)
    """The ended subscriptions with messages in flight, or waiting."""
    _matching: Matching | None = field(default=None, init=False)
    link: Link | None = field(default=None, init=False)
    is_over: bool = field(default=False, init=False)
    _on_end: list[Callable[[], None]] = field(default_factory=list, init=False)
    dropped_count: int = field(default=0, init=False)
    expired_count: int = field(default=0, init=False)
    _next_id: int = field(init=False)
    _behind: dict[SessionSubscription, None] = field(default_factory=dict, init=False)
    _touched: dict[FilterLog, None] = field(default_factory=dict, init=False)
    _read: dict[SessionSubscription, None] = field(default_factory=dict, init=False)
    """The subscriptions whose counts are to be written."""
    _held: object = field(default=None, init=False)  # waits for its place in the unfinished to be durable
    _progress_due_ms: int | None = field(default=None, init=False)
    """When what changed is written; None: nothing did."""
    _unrepeated: set[int] = field(default_factory=set, init=False)
    """Unfinished messages this client has not been sent again."""

    def __post_init__(self, common: Common, value: SessionValue, sent: Iterable[Sent]) -> None:
        self._common = common
        self._context = common.context
        self._giving_way = GivingWay(common)
        self._losses = common.losses
        self.number = value.number
        self.expiry_s = value.expiry_s
        self.ended_at_ms = value.ended_at_ms
        self.user = value.user
        self.unfinished = Unfinished(sent)
        self.received = Received(common.context, value.number)
        self._next_id = self.read_to

    @property
    def bounds(self) -> Bounds:
        """How much may wait for it."""
        if self._bounds_version != self._common.bounds_version:
            self._bounds = self._common.bounds_of(self.vhost, self.client_id)
            self._bounds_version = self._common.bounds_version
        return self._bounds

    @property
    def position(self) -> int:
        """Everything of the session's with a lower ID is done."""
        lowest = self.unfinished.lowest_id()
        return self.read_to if lowest is None else lowest

    @property
    def expires_at_ms(self) -> int | None:
        """When it ends, if nobody comes; None: not at all, or not while somebody is there."""
        if self.ended_at_ms == CONNECTED or self.expiry_s == NEVER_S:
            return None
        return self.ended_at_ms + self.expiry_s * 1000

    @property
    def counted_for(self) -> str | None:
        """The user whose quotas it counts for; None: it is the broker's own."""
        return counted_user(self.user)

    # its connection

    def expect(self, expiry_s: int) -> None:
        """Note that a client is about to be attached: the session ends so long after that is gone, not
        before.
        """
        self.expiry_s = expiry_s
        self.ended_at_ms = CONNECTED
        self.write_record()

    def attach(self, link: Link) -> None:
        """Take a connection: everything the client may not have is sent (again), then what waits."""
        self.link = link
        if self.ended_at_ms != CONNECTED:
            self.ended_at_ms = CONNECTED
            self.write_record()
        if not len(self.unfinished):
            for each in [s for s in self.subscriptions.values() if s.is_own and s.is_drained]:
                self.remove(each)
        self._held = None
        self._next_id = self.position
        self._unrepeated = {s.message_id for s in self.unfinished if s.state != RECEIVED_QOS_2}
        for subscription in self.subscriptions.values():
            log = subscription.log
            if log is not None:
                log.live[subscription] = None
                if log.last_id >= self._next_id:
                    self._behind[subscription] = None
        self._forget_ended()
        self._behind |= dict.fromkeys(self._ended.values())
        released = self.unfinished.released()
        if released:
            link.release(released)
        self._context.dispatchable[self] = None

    def detach(self, now_ms: int) -> None:
        """Note that the connection is gone."""
        self.link = None
        self.ended_at_ms = now_ms
        self._held = None
        self._behind.clear()
        for subscription in self.subscriptions.values():
            if subscription.log is not None:
                subscription.log.live.pop(subscription, None)
                subscription.log.waiting.pop(subscription, None)
        for ended in self._ended.values():
            assert ended.log is not None
            ended.log.waiting.pop(ended, None)
        self.write_record()
        self.received.keep(now_ms)
        self._progressed_now()

    def expire_after(self, expiry_s: int) -> None:
        """Note the goodbye of a client: the session is to end so long after the connection does."""
        self.expiry_s = expiry_s

    def write_record(self) -> None:
        """Have the session itself written."""
        value = session.encode(self.number, self.expiry_s, self.ended_at_ms, self.user)
        self._context.commit.put(self._key, value)

    # subscriptions

    def add(self, subscription: SessionSubscription) -> None:
        """Subscribe, or subscribe anew, to a filter; written with the open commit."""
        self.restore(subscription)
        if subscription.log is not None and self.link is not None:
            subscription.log.live[subscription] = None
        self._context.commit.put(*subscription.record())

    def restore(self, subscription: SessionSubscription) -> None:
        """Restore, after a start, a subscription that was stored."""
        if subscription.is_ended:
            self._ended[subscription.filter] = subscription
            if subscription.log is not None:
                subscription.log.holders[subscription] = None
            return
        self._matching = None
        known = self.subscriptions.get(subscription.filter)
        self.subscriptions[subscription.filter] = subscription
        if known is not subscription:
            self._beside_count += subscription.log is None
        if known is None and not subscription.is_own:
            self._context.quotas.add(SUBSCRIPTIONS, self.vhost, self.counted_for)
        if subscription.log is not None:
            subscription.log.readers[subscription] = None

    def remove(self, subscription: SessionSubscription, *, is_replaced: bool = False) -> None:
        """Unsubscribe: what waits because of this filter alone is not sent, unless the subscription is
        replaced (section 3.8.4); what is in flight stays in any case [MQTT-3.10.4-3].
        """
        if self.subscriptions.pop(subscription.filter, None) is None:
            return
        self._matching = None
        self._beside_count -= subscription.log is None
        if not subscription.is_own:
            self._context.quotas.remove(SUBSCRIPTIONS, self.vhost, self.counted_for)
        own = self.subscriptions.get(OWN + subscription.filter)
        if own is not None:
            self.remove(own, is_replaced=is_replaced)
        self._behind.pop(subscription, None)
        log = subscription.log
        if log is not None:
            if not self.is_over:
                self._end_later(subscription, log, is_replaced=is_replaced)
            log.forget_reader(subscription)
        self._context.commit.delete(subscription.record()[0])

    def _end_later(self, subscription: SessionSubscription, log: FilterLog, *, is_replaced: bool) -> None:
        """Keep what a subscription brought and is in flight, to be sent again [MQTT-4.4.0-1], and if it is
        replaced what waits.
        """
        end_id = log.last_id + 1
        waits = is_replaced and end_id > max(self.read_to, subscription.from_id)
        if not waits:
            end_id = min(end_id, self.read_to)
        if not waits and not self.unfinished.has_unreceived(subscription.from_id, end_id - 1):
            return
        name = f"{ENDED}{log.number}{OWN}{end_id}"
        if name not in self._ended:
            ended = SessionSubscription(self, name, subscription.options, log, subscription.from_id)
            if waits:
                ended.begin_at(subscription.read_count, subscription.read_bytes)
            else:
                ended.begin_at(log.end_count, log.end_bytes)
            self._ended[name] = ended
            log.holders[ended] = None
            self._context.commit.put(*ended.record())
            if self.link is not None:
                self._behind[ended] = None
                self._context.dispatchable[self] = None
        self._touched[log] = None
        self._progressed_now()

    def _forget_ended(self) -> None:
        """Let go of ended subscriptions of which everything is finished."""
        position = self.position
        for ended in [each for each in self._ended.values() if each.end_id <= position]:
            self._drop_ended(ended)

    def _drop_ended(self, ended: SessionSubscription) -> None:
        del self._ended[ended.filter]
        self._behind.pop(ended, None)
        if ended.log is not None:
            ended.log.forget_reader(ended)
        self._context.commit.delete(ended.record()[0])

    @property
    def keeps_any(self) -> bool:
        """Whether messages are kept for any of its subscriptions."""
        return len(self.subscriptions) > self._beside_count

    def matched(self, topics: tuple[str, ...], *, is_own: bool) -> Matched:
        """Return its subscriptions that bring it what is published to topics, by itself if that `is_own`."""
        if self._matching is None:
            self._matching = Matching(self.subscriptions)
        return self._matching.of(topics, is_own=is_own)

    def wake(self) -> None:
        """Send more: the client takes it."""
        if self._behind or self._unrepeated:
            self._context.dispatchable[self] = None

    def has_more(self, subscription: SessionSubscription) -> None:
        if self.link is not None:
            self._behind[subscription] = None
            self._context.dispatchable[self] = None

    # sending

    def dispatch(self, now_ms: int) -> None:
        """See `queue_manager.shard.context.Dispatched`: give the client what it takes."""
        link = self.link
        while link is not None and self._held is None and (self._behind or self._unrepeated):
            repeats = self._next_id < self.read_to
            room = link.room()
            if not repeats:
                room = min(room, limits.MQTT_SESSION_INFLIGHT_MAX - len(self.unfinished))
            if room <= 0:
                return
            merged = self._next(room)
            if merged is None:
                return
            found_count = sum(len(each.subscriptions) for each in merged)
            if not repeats:
                merged = self._within_bounds(merged)
            deliveries = self._deliveries(merged, link, now_ms)
            if len(deliveries) < found_count and not repeats:
                link.forget([])  # room was kept for what the client does not get, or gets once
            if repeats and self._next_id >= self.read_to:
                self._forget_unrepeated(link, now_ms)
            if any(d.qos == 2 and not d.is_repeated for d in deliveries):
                self._hold(deliveries, link)
            elif deliveries:
                link.deliver(deliveries)
            link = self.link

    def _next(self, count: int) -> list[Merged] | None:
        """Return the next messages of all logs, in order; None: some are being read."""
        parts = []
        end_id = END
        if self._next_id < self.read_to:
            end_id = self.read_to  # what was sent before is sent again first
        is_waiting = False
        for subscription in list(self._behind):
            assert subscription.log is not None
            if subscription.end_id <= self._next_id:
                subscription.note_all_read()
                del self._behind[subscription]
                continue
            from_id = max(self._next_id, subscription.from_id)
            found = subscription.log.read(from_id, count, subscription)
            if found is not None and subscription.is_ended:
                found = found.below(subscription.end_id)
            if found is None:
                is_waiting = True
            elif not found.messages and found.end_id == END:
                if self._next_id >= self.read_to:
                    del self._behind[subscription]
            else:
                end_id = min(end_id, found.end_id)
                parts.append((subscription, found.messages))
        if is_waiting:
            return None
        merged = merge(parts, end_id)
        if len(merged) > count:
            del merged[count:]
            end_id = merged[-1].message.message_id + 1
        if end_id != END:
            self._next_id = end_id
        elif merged:
            self._next_id = merged[-1].message.message_id + 1
        return merged

    @property
    def queued(self) -> tuple[int, int]:
        """Messages, and bytes of body, that wait; what several filters matched counts for each."""
        count = body_bytes = 0
        for subscription in self.subscriptions.values():
            log = subscription.log
            if log is not None:
                count += log.end_count - subscription.read_count
                body_bytes += log.end_bytes - subscription.read_bytes
        for ended in self._ended.values():
            waiting_count, waiting_bytes = ended.waiting
            count += waiting_count
            body_bytes += waiting_bytes
        return count, body_bytes

    def lost(self, subscription: SessionSubscription, count: int) -> None:
        self.note_dropped(count)
        self._read[subscription] = None
        self._progressed_now()

    def note_dropped(self, count: int) -> None:
        """Count so many messages that had no room."""
        self.dropped_count += count
        self._losses.drop(count)

    def _within_bounds(self, merged: list[Merged]) -> list[Merged]:
        """Leave out of what is read next what gives way, as more waits than may; counts it all as read."""
        kept = self._giving_way.keep(merged, self.bounds, *self.queued)
        if len(kept) < len(merged):
            self.note_dropped(len(merged) - len(kept))
        for each in merged:
            for subscription in each.subscriptions:
                subscription.note_read(len(each.message.body))
                self._read[subscription] = None
        return kept

    def _deliveries(self, merged: list[Merged], link: Link, now_ms: int) -> list[Delivery]:
        deliveries = []
        touched = self._touched
        for each in merged:
            message = each.message
            message_id = message.message_id
            for subscription in each.subscriptions:
                assert subscription.log is not None
                touched[subscription.log] = None
            if message_id < self.read_to:
                sent = self.unfinished.find(message_id)
                if sent is not None and sent.state != RECEIVED_QOS_2:
                    self._unrepeated.discard(message_id)
                    each = self._with_beside(each)
                    retain = each.retain(message.flags & RETAIN != 0)
                    deliveries.append(Delivery(each, sent.state, retain, sent.packet_id, is_repeated=True))
                continue
            wanted = each.for_session(self.number)
            if wanted is None:
                continue
            due_ms = expires_at_ms(message.template, message.received_at_ms)
            if due_ms and due_ms <= now_ms:
                self.expired_count += 1
                self._losses.expire(1)
                continue
            packet_id = link.take_packet_id()
            qos = wanted.qos
            self.unfinished.add(message_id, packet_id, qos)
            wanted = self._with_beside(wanted)
            retain = wanted.retain(message.flags & RETAIN != 0)
            deliveries.append(Delivery(wanted, qos, retain, packet_id))
        if self._next_id > self.read_to:
            self.read_to = self._next_id
            self._progressed(now_ms)
        return deliveries

    def _with_beside(self, merged: Merged) -> Merged:
        """Add the subscriptions that keep nothing, and so bring what others do not [MQTT-3.3.4-4]; those that
        were there when the message came.
        """
        if not self._beside_count or merged.subscriptions[0].is_own:
            return merged
        message = merged.message
        matched = self.matched((message.template.topic,), is_own=message.publisher == self.number)
        beside = [each for each in matched.beside if each.from_id <= message.message_id]
        return Merged(message, [*merged.subscriptions, *beside]) if beside else merged

    def _forget_unrepeated(self, link: Link, now_ms: int) -> None:
        """Forget what should have been sent again and is kept nowhere, as it had to give way: it is done.

        With QoS 2 the client may have got it: PUBREL has it end the exchange, too.
        """
        if not self._unrepeated:
            return
        forgotten, released = self.unfinished.give_up(self._unrepeated)
        self._unrepeated.clear()
        link.forget(forgotten)
        if released:
            link.release(released)
        self._progressed(now_ms)

    def _hold(self, deliveries: list[Delivery], link: Link) -> None:
        """Send these once it is durable under which identifiers: after a crash they must be the same."""

        def release(tokens: list[int]) -> None:
            if self._held is held and self.link is link:  # else another connection sends them again
                self._held = None
                link.deliver(deliveries)
                self._context.dispatchable[self] = None

        held = self._held = OnceDurable(release)
        self._progressed_now()
        self._context.commit.wait(held, 0)

    # what the client says

    def acknowledge(self, packet_ids: list[int], now_ms: int, *, at_once: bool = False) -> None:
        """Take PUBACK or PUBCOMP, or a refusal: these are finished. `at_once`: it is written with the open
        commit.
        """
        if self.unfinished.finish(packet_ids):
            if self._unrepeated:
                self._unrepeated = {i for i in self._unrepeated if self.unfinished.find(i) is not None}
            if at_once:
                self._progressed_now()
            else:
                self._progressed(now_ms)
            if self._behind:
                self._context.dispatchable[self] = None

    def receive(self, packet_ids: list[int], now_ms: int) -> list[int]:
        """Take PUBREC: PUBREL is sent once that is durable. Gives which of these are the session's."""
        known = self.unfinished.receive(packet_ids)
        if self._unrepeated:
            self._unrepeated -= {s.message_id for s in self.unfinished if s.state == RECEIVED_QOS_2}
        if known and self.link is not None:
            self._progressed_now()
            link = self.link
            call = OnceDurable(lambda tokens: link.release(tokens) if self.link is link else None)
            self._context.commit.wait_for(call, known)
        return known

    def _progressed(self, now_ms: int) -> None:
        """Have what is done deleted, and the progress written soon: the more is in flight, all of which that
        tells, the less often.
        """
        self._let_go()
        if self._progress_due_ms is None:
            in_flight_ms = len(self.unfinished) // limits.SESSION_PROGRESS_MESSAGES_PER_MS
            self._progress_due_ms = now_ms + max(limits.STATE_FLUSH_INTERVAL_MS, in_flight_ms)
            self._context.state_writes.add(self, self._progress_due_ms)

    def _progressed_now(self) -> None:
        """Note progress as `_progressed`, with the open commit: something in that depends on it."""
        self._let_go()
        self._progress_due_ms = 0
        self._context.state_writes.add(self, 0)

    def _let_go(self) -> None:
        """Have logs look at what this session has done."""
        if self._ended:
            self._forget_ended()
        position = self.position
        for log in list(self._touched):
            self._context.trimmable[log] = None
            if log.last_id < position:
                del self._touched[log]

    def write(self, commit: Commit, now_ms: int, *, is_part: bool = False) -> None:
        """See `queue_manager.shard.context.Stateful`: it is little, and written whole."""
        self._progress_due_ms = None
        if self.is_over:
            return
        commit.put(session_progress.key(self.number), self.unfinished.encode(self.read_to))
        for subscription in self._read:
            known = self._ended if subscription.is_ended else self.subscriptions
            if known.get(subscription.filter) is subscription:
                commit.put(*subscription.record())
        self._read.clear()

    # its end

    def tell_end(self, call: Callable[[], None]) -> None:
        """Have `call` called when the session is over."""
        self._on_end.append(call)

    def end(self, now_ms: int) -> None:
        """Keep nothing of it: its records go with the open commit."""
        self.is_over = True
        self.link = None
        commit = self._context.commit
        for subscription in list(self.subscriptions.values()):
            self.remove(subscription)
        for ended in list(self._ended.values()):
            self._drop_ended(ended)
        self._context.state_writes.forget(self)
        self._context.dispatchable.pop(self, None)
        commit.delete(self._key)
        commit.delete(session_progress.key(self.number))
        self.received.delete(commit)
        for call in self._on_end:
            call()
