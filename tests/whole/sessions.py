"""What MQTT sessions are sent from ordinary topics: a list of copies for each, and for each shared group."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.whole.queues import EARLY_S, LATE_S, UNWRITTEN_S, Mismatch
from tests.whole.routes import filter_matches

ENDED_S = 0.3  # the broker saw the end of a connection so much earlier, at most, than it was noted here


@dataclass
class Subscription:
    """Options of one filter of a session, outside `$queue/`."""

    qos: int
    no_local: bool = False
    as_published: bool = False
    identifier: int = 0


@dataclass(eq=False)
class Copy:
    """One message on its way to one session. `qos` and `identifiers` are those it must come with.

    `packet_id`: under which it was sent; `shared`: the group it was sent for; `perhaps_shared`: it may have
    been that of a group; `published`: QoS and RETAIN of what a group gave, for another member;
    `waits_with`: members of its group, one of which has it, that had no room. A crash before `stored_by` may
    lose it.
    """

    body: str
    topic: str
    qos: int
    retain: bool
    identifiers: list[int]
    required: bool = True
    packet_id: int = 0
    again: bool = False
    expires: float | None = None
    step: int = 0
    shared: SharedGroup | None = None
    published: tuple[int, bool] = 0, False
    perhaps_shared: bool = False
    any_options: bool = False
    weight: int = 1
    gave_way: bool = False
    waits_with: set[str] = field(default_factory=set)
    stored_by: float = 0.0

    def is_due(self, now: float) -> bool:
        """Whether it must come, also where it took as long as it may."""
        return self.required and (self.expires is None or now < self.expires - EARLY_S)


@dataclass(eq=False)
class Session:
    """A client's session. `window()` of a connected client: how many more of QoS 1 and 2 it may be sent.

    `kept`: it lasts, or did under an earlier connection. `ends`: when it ends if nobody comes, at the
    earliest and at the latest. `releasing`: received, while PUBREL is not answered. `unreleased`: what
    PUBREL is owed for again; `maybe_unreleased`: what it may come for. `packet_maximum`: what is larger is
    not sent.
    """

    client: str
    version: int
    lasting: bool
    kept: bool = False
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    shared: dict[tuple[str, str], Subscription] = field(default_factory=dict)
    connected: bool = True
    pending: list[Copy] = field(default_factory=list)
    in_flight: list[Copy] = field(default_factory=list)
    repeats: list[Copy] = field(default_factory=list)
    receive_maximum: int = 65_535
    packet_maximum: int = 0
    expiry_s: float = 0
    ends: tuple[float, float] | None = None
    releasing: dict[int, Copy] = field(default_factory=dict)
    unreleased: set[int] = field(default_factory=set)
    maybe_unreleased: dict[int, Copy] = field(default_factory=dict)
    queue_in_flight: int = 0
    recent: list[tuple[float, Copy]] = field(default_factory=list)
    completed: list[tuple[float, Copy]] = field(default_factory=list)  # PUBREL was answered at that time
    queue_filters: dict[str, tuple[str, bool, int, str]] = field(default_factory=dict)
    queue_topics: dict[str, str] = field(default_factory=dict)  # as they were subscribed to
    made_at: float = field(default_factory=time.time)
    may_be_lost: bool = False  # a kill came before it was written, and it had nothing

    def window(self) -> int:
        return self.receive_maximum - len(self.in_flight) - len(self.releasing) - self.queue_in_flight

    def takes(self, copy: Copy) -> bool:
        """Whether its body alone is not too large for the client."""
        return not self.packet_maximum or len(copy.body) <= self.packet_maximum

    def note_maybe_unreleased(self) -> None:
        """The connection ended: PUBREL, or PUBCOMP, of a moment ago may not have been read."""
        for at, copy in [*self.recent, *self.completed]:
            if copy.qos == 2 and time.time() - at < UNWRITTEN_S:
                self.maybe_unreleased[copy.packet_id] = copy
        self.completed.clear()

    def stored_filters(self) -> int:
        return sum(found.qos > 0 for found in self.subscriptions.values())

    def waiting(self) -> tuple[int, int]:
        """How much is stored and was not sent yet, at least and at most."""
        stored = [copy for copy in self.pending if copy.qos]
        again = sum(copy.again for copy in [*self.in_flight, *self.repeats])
        return sum(copy.required for copy in stored), sum(copy.weight for copy in stored) + again


@dataclass(eq=False)
class SharedGroup:
    """A `$share` group with a filter: its members, and what waits for any of them."""

    name: str
    topic_filter: str
    pending: list[Copy] = field(default_factory=list)

    def key(self) -> tuple[str, str]:
        return self.name, self.topic_filter


@dataclass
class Retained:
    body: str
    qos: int
    required: bool = True
    expires: float | None = None
    stored_by: float = 0.0
    before: list[Retained] = field(default_factory=list)


def _granted(qos: int, wanted: int) -> int:
    """With which QoS a subscription brings what was published with one, of which 3 is any."""
    return qos if qos == 3 and wanted else min(qos, wanted)


class Sessions:
    """All sessions of a virtual host, and the retained messages. `bounds`: so many messages may wait for a
    session, and what gives way then, `oldest` or `reject`.
    """

    bounds: tuple[int, str] | None = None

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.groups: dict[tuple[str, str], SharedGroup] = {}
        self.retained: dict[str, list[Retained]] = {}
        self.step = 0
        self.given: list[tuple[Session, Copy]] = []  # in this step, of shared groups

    def members(self, group: SharedGroup) -> list[Session]:
        return [session for session in self.sessions.values() if group.key() in session.shared]

    def lasts(self, group: SharedGroup) -> bool:
        """Whether the group keeps what comes while nobody of it is there."""
        return any(member.lasting and member.shared[group.key()].qos for member in self.members(group))

    # ---- publish

    def publish(
        self,
        topic: str,
        body: str,
        qos: int,
        *,
        retain: bool = False,
        by: str = "",
        required: bool = True,
        by_topics: Collection[str] = (),
        expires: float | None = None,
        stored_by: float = 0.0,
    ) -> int:
        """Make the copies; how many sessions and groups are to have one (-1: none, but it may seem so).

        `qos` 3: whatever it comes with. `by_topics`: what filters have to match, if not `topic`: each session
        has one copy, under `topic`, however many of them match, as with RabbitMQ. A crash before `stored_by`
        may lose it.
        """

        def matches(topic_filter: str) -> bool:
            return any(filter_matches(topic_filter, one) for one in by_topics or (topic,))

        takers = 0
        unsure = False
        for session in self.sessions.values():
            ways = [
                found
                for topic_filter, found in session.subscriptions.items()
                if matches(topic_filter) and not (found.no_local and by == session.client)
            ]
            if not ways:
                if session.kept and any(matches(found) for found in session.subscriptions):
                    unsure = True  # stored for the filter, though the session does not want it
                continue
            takers += self._copy(session, ways, topic, body, qos, retain, required, expires)
            unsure = unsure or session.kept  # which may not keep it
        for group in self.groups.values():
            if matches(group.topic_filter) and self.members(group):
                takers += self._share(group, topic, body, qos, retain, required, expires)
        for copy in self.copies():
            if copy.body == body:
                copy.stored_by = stored_by
        if retain:
            if not body:
                self.retained.pop(topic, None)
            else:
                before = self.retained.get(topic, [])
                kept = Retained(body, qos, required, expires, stored_by, before if stored_by else [])
                self.retained[topic] = [kept] if required else [*before, kept]
        return takers or (-1 if unsure else 0)

    def _copy(
        self,
        session: Session,
        ways: list[Subscription],
        topic: str,
        body: str,
        qos: int,
        retain: bool,
        required: bool,
        expires: float | None,
    ) -> int:
        granted = _granted(qos, max(way.qos for way in ways))
        if not session.connected and not (session.lasting and granted):
            return 0
        copy = Copy(
            body,
            topic,
            granted,
            retain and any(way.as_published for way in ways),
            sorted(way.identifier for way in ways if way.identifier),
            required,
            step=self.step,
            expires=expires,
            weight=sum(way.qos > 0 for way in ways) or 1,
        )
        session.pending.append(copy)
        self.hold_to_bounds(session)
        return 1

    def verdict(self, topics: Collection[str], qos: int, by: str = "", count: int = 1) -> str:
        """`take`, `refuse` or `either` for `count` messages more, of those sessions that may refuse."""
        if self.bounds is None or self.bounds[1] != "reject" or not qos:
            return "take"
        verdict = "take"
        for session in self.sessions.values():
            ways = [
                found
                for topic_filter, found in session.subscriptions.items()
                if found.qos and any(filter_matches(topic_filter, topic) for topic in topics)
            ]
            if not ways or not session.kept:
                continue
            low, high = session.waiting()
            sure = session.lasting and len(session.subscriptions) == 1
            if low + 1 > self.bounds[0] and sure and count == 1:
                return "refuse"
            if high + count * len(ways) > self.bounds[0]:
                verdict = "either"
        return verdict

    def hold_to_bounds(self, session: Session) -> None:
        """Where the oldest give way, only so many of the newest have to come: also of what comes at once to a
        client that is there, which waits until the session is looked at.
        """
        if self.bounds is None or self.bounds[1] != "oldest":
            return
        waits = not session.connected or session.window() <= 0
        room = self.bounds[0]
        for copy in reversed(session.pending):
            if copy.qos:
                room -= copy.weight
                if room < 0:
                    copy.required, copy.gave_way = False, copy.gave_way or waits

    def _gave_way(self, session: Session) -> None:
        """What must have given way when the session is resumed is not there."""
        stored = [copy for copy in session.pending if copy.qos]
        if session.stored_filters() == 1 and all(copy.required or copy.gave_way for copy in stored):
            session.pending = [copy for copy in session.pending if not copy.gave_way]

    def _share(
        self,
        group: SharedGroup,
        topic: str,
        body: str,
        qos: int,
        retain: bool,
        required: bool,
        expires: float | None,
    ) -> int:
        there = any(member.connected for member in self.members(group))
        if not there and not (qos and self.lasts(group)):
            return 0
        copy = Copy(body, topic, qos, retain, [], required, step=self.step, shared=group, expires=expires)
        copy.published = qos, retain
        if not all(member.takes(copy) for member in self.members(group)):
            copy.required = False  # given to one that it is too large for
        group.pending.append(copy)
        return 1

    # ---- subscribe

    def subscribe(self, session: Session, topic_filter: str, wanted: Subscription, handling: int) -> None:
        """Take the subscription down, and make the copies of retained messages it brings."""
        if topic_filter.startswith("$share/"):
            _, name, rest = topic_filter.split("/", 2)
            group = self.groups.setdefault((name, rest), SharedGroup(name, rest))
            if session.shared.get((name, rest), wanted) != wanted:
                for copy in group.pending:  # what waits with the session may come as it was subscribed to
                    copy.any_options = copy.any_options or session.client in copy.waits_with
            session.shared[name, rest] = wanted
            self._may_be_too_large(session)
            return
        new = topic_filter not in session.subscriptions
        if session.subscriptions.get(topic_filter, wanted) != wanted:
            self._options_change(session, topic_filter)
        session.subscriptions[topic_filter] = wanted
        if handling == 2 or (handling == 1 and not new):
            return
        for topic, kept in self.retained.items():
            if not filter_matches(topic_filter, topic):
                continue
            for one in kept:
                if one.expires is not None and time.time() > one.expires + LATE_S:
                    continue
                session.pending.append(
                    Copy(
                        one.body,
                        topic,
                        min(one.qos, wanted.qos),
                        True,
                        [wanted.identifier] if wanted.identifier else [],
                        one.required and len(kept) == 1,
                        step=self.step,
                        expires=one.expires,
                    )
                )

    @staticmethod
    def _options_change(session: Session, topic_filter: str) -> None:
        """What waits may come as the subscription is now, or as it was."""
        for copy in session.pending:
            if filter_matches(topic_filter, copy.topic):
                copy.any_options = True

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        """Whether there was such a subscription. What only it brought may still come, or not."""
        if topic_filter.startswith("$share/"):
            _, name, rest = topic_filter.split("/", 2)
            found = session.shared.pop((name, rest), None) is not None
            self._leave_groups(session)
            return found
        found = session.subscriptions.pop(topic_filter, None) is not None
        for copy in session.pending:
            if filter_matches(topic_filter, copy.topic):
                copy.required = False
                copy.any_options = True
        return found

    def _leave_groups(self, session: Session) -> None:
        for key, group in list(self.groups.items()):
            members = self.members(group)
            if not members:
                del self.groups[key]
            elif not self.lasts(group):
                for copy in group.pending:
                    copy.required = False

    # ---- sessions

    def start(
        self,
        client: str,
        version: int,
        *,
        clean: bool,
        lasting: bool,
        receive_maximum: int,
        expiry_s: float = 0,
        packet_maximum: int = 0,
    ) -> Session:
        """A CONNECT: the session it has, an old one where that lasted and is wanted."""
        old = self.sessions.get(client)
        if old is not None and old.connected:
            self.lose(client)
            old = self.sessions.get(client)
        if old is not None and clean:
            self.end(client)
            old = None
        if old is None:
            old = self.sessions[client] = Session(client, version, lasting)
        old.connected, old.version, old.lasting = True, version, lasting
        old.kept = old.kept or lasting
        old.receive_maximum, old.packet_maximum = receive_maximum, packet_maximum
        old.expiry_s, old.ends, old.may_be_lost = expiry_s, None, False
        old.unreleased = set(old.releasing)
        old.note_maybe_unreleased()
        self._gave_way(old)
        old.repeats = list(old.in_flight)
        old.in_flight = []
        self._may_be_too_large(old)
        return old

    def _may_be_too_large(self, session: Session) -> None:
        """What waits for its groups may be given to the client, which does not take it."""
        for key in session.shared:
            for copy in self.groups[key].pending:
                copy.required = copy.required and session.takes(copy)

    def may_have_been_sent(self, session: Session) -> None:
        """What waits for a client may have been sent to it, and not been read."""
        shared = [copy for key in session.shared for copy in self.groups[key].pending]
        for copy in [*session.pending, *shared]:
            copy.again = True

    def lose(self, client: str, at: float = 0.0) -> None:
        """The connection ended, `at` this time at the earliest, if that was not just now."""
        session = self.sessions.get(client)
        if session is None or not session.connected:
            return
        session.connected = False
        session.in_flight = [*session.repeats, *session.in_flight]
        session.repeats = []
        for packet_id, copy in list(session.releasing.items()):
            if copy.shared is not None or copy.perhaps_shared:  # what groups gave ends with the connection
                del session.releasing[packet_id]
            if copy.perhaps_shared:
                session.maybe_unreleased[packet_id] = copy
        for copy in [copy for copy in session.in_flight if copy.shared is not None]:
            session.in_flight.remove(copy)
            self._returned(copy)
        if not session.lasting:
            self.end(client)
            return
        now = time.time()
        session.ends = (at or now) - ENDED_S + session.expiry_s, now + session.expiry_s
        session.pending = [copy for copy in session.pending if copy.qos]
        for group in self.groups.values():
            members = self.members(group)
            if not any(member.connected for member in members):
                group.pending = [copy for copy in group.pending if copy.qos and self.lasts(group)]

    def ended_unread(self, session: Session, read_until: float) -> None:
        """The broker ended the connection, and may not have read what was acknowledged since `read_until`."""
        for at, copy in session.recent:
            if at >= read_until:
                again = replace(copy, required=False, any_options=True, again=True)
                (session if copy.shared is None else copy.shared).pending.append(again)

    def _returned(self, copy: Copy) -> None:
        """A shared message that its member did not acknowledge goes to another one, or waits."""
        group = copy.shared
        assert group is not None
        if copy.qos == 2:
            copy.required = False
        if not all(member.takes(copy) for member in self.members(group)):
            copy.required = False
        copy.again = True
        copy.qos, copy.retain = copy.published
        if self.groups.get(group.key()) is group:
            group.pending.insert(0, copy)

    def end(self, client: str) -> None:
        session = self.sessions.pop(client, None)
        if session is None:
            return
        for copy in [*session.in_flight, *session.repeats]:
            if copy.shared is not None:
                self._returned(copy)
        self._leave_groups(session)

    def restart(self, ends: float, *, killed: bool) -> None:
        """The broker ended, at `ends` at the earliest. After a kill what was acknowledged in the last moment
        may come again, and what its publisher was told nothing of may be lost.
        """
        if killed:
            self._may_be_lost(time.time())
        for session in list(self.sessions.values()):
            is_new = time.time() - session.made_at < UNWRITTEN_S
            session.may_be_lost = killed and is_new and not (session.subscriptions or session.shared)
            self.lose(session.client, ends)
            session.note_maybe_unreleased()
            recent, session.recent = session.recent, []
            for at, copy in recent:
                # PUBREC was sent, PUBREL did not come; or it ended before it read PUBACK
                unsure = killed or copy.qos == 2 or at > ends - EARLY_S
                if unsure and time.time() - at < UNWRITTEN_S:
                    session.pending.append(replace(copy, required=False, any_options=True, again=True))
            if killed:
                for copy in session.in_flight:  # whether it was sent may not have been written
                    copy.again = True
                for copy in session.pending:
                    copy.again = True
        if killed:
            for group in self.groups.values():
                for copy in group.pending:
                    copy.again = True

    def _may_be_lost(self, now: float) -> None:
        sent = [copy for session in self.sessions.values() for copy in (*session.repeats, *session.in_flight)]
        for copy in [*self.copies(), *sent]:
            copy.required = copy.required and now >= copy.stored_by
        for topic, kept in self.retained.items():
            if now < kept[-1].stored_by:
                kept[-1].required = False
                self.retained[topic] = [*kept[-1].before, *kept]

    def restarted(self) -> None:
        """The broker is there again: the time of who was connected begins now, at the latest."""
        now = time.time()
        for session in self.sessions.values():
            if session.ends is not None:
                session.ends = session.ends[0], now + session.expiry_s

    # ---- deliveries

    def delivered(self, session: Session, fields: dict[str, Any], at: float) -> Copy:
        """Check a delivery and take it down. Raises Mismatch."""
        copy = self._found(session, fields)
        if fields["dup"]:  # what was sent in time may be sent again later
            return copy
        if copy.expires is not None and at > copy.expires + LATE_S:
            raise Mismatch(f"{copy.body!r} to {session.client} {at - copy.expires:.3f} s after it expired")
        if copy.expires is not None and session.version == 5:
            left, told = copy.expires - at, fields.get("expiry_s")
            if told is None or not left - 1.2 <= told <= left + 1.2 + LATE_S:  # it may be read late
                raise Mismatch(f"{copy.body!r} says it expires in {told} s, it is {left:.3f}")
        return copy

    def _found(self, session: Session, fields: dict[str, Any]) -> Copy:
        body, topic, qos = fields["body"], fields["topic"], fields["qos"]
        now = time.time()
        what = f"{body!r} on {topic} with QoS {qos} to {session.client}"
        if fields["dup"]:
            return self._repeated(session, fields, what)
        wrong, overtakes = "it should not have it", ""
        if session.version != 5:  # which has no identifiers
            for copy in session.pending:
                copy.identifiers = []
        offered = list(self._as_member(session, body, topic))
        # one that comes with any QoS, or need not come, fits later, too
        # what was given before and acknowledged by nobody may come again with DUP: not for one without
        offered.sort(key=lambda pair: (pair[1].qos == 3, not pair[0].required, pair[0].again))
        is_exact = any(wanted.qos == qos for _, wanted in offered)
        shared = [(kept, wanted) for kept, wanted in offered if not self._differs(wanted, fields)]
        # one that need not come fits later, too, and so does one that may come with any options
        for copy in sorted(session.pending, key=lambda one: (not one.required, one.any_options)):
            if copy.body != body or copy.topic != topic or (copy.qos == 3 and not qos and is_exact):
                continue
            wrong = self._differs(copy, fields)
            if wrong:
                continue
            earlier = self._overtaken(session, copy, now) if qos and copy.required else None
            if earlier is not None:
                wrong = overtakes = f"before {earlier.body!r}"
                if shared:
                    break  # `$share` has an order of its own
                continue
            if shared and qos:  # which of the two it was cannot be told
                for either in (copy, *shared[0]):
                    either.required, either.again, either.perhaps_shared = False, True, True
                    either.any_options = either.any_options or copy.any_options
            session.pending.remove(copy)
            return self._sent(session, copy, fields)
        if overtakes and not shared:
            raise Mismatch(f"{what}, {overtakes}")
        for kept, wanted in shared:
            assert wanted.shared is not None
            wanted.shared.pending.remove(kept)
            self.given.append((session, wanted))
            if session.lasting and wanted.qos == 2:
                wanted = replace(wanted, shared=None)  # completed with this member, whatever happens
            return self._sent(session, wanted, fields)
        exchanged = self._exchanged(session, fields)
        if exchanged is not None:
            return self._sent(session, exchanged, fields)
        for copy in session.repeats:
            if copy.again and copy.body == body and copy.topic == topic:
                session.repeats.remove(copy)
                return self._sent(session, copy, fields)
        raise Mismatch(f"{what}: {wrong}")

    def _as_member(self, session: Session, body: str, topic: str) -> Iterator[tuple[Copy, Copy]]:
        """What waits with this body for groups of the session: as it is kept, and as a member gets it."""
        for key, way in session.shared.items():
            group = self.groups[key]
            for copy in group.pending:
                if copy.body != body or copy.topic != topic:
                    continue
                granted = _granted(copy.qos, way.qos)
                idents = [way.identifier] if way.identifier and session.version == 5 else []
                wanted = Copy(body, topic, granted, copy.retain and way.as_published, idents)
                wanted.expires = None if copy.again else copy.expires  # sent in time, and may be so again
                wanted.shared, wanted.published = group, (copy.qos, copy.retain)
                wanted.stored_by, wanted.any_options = copy.stored_by, copy.any_options
                yield copy, wanted

    @staticmethod
    def _overtaken(session: Session, copy: Copy, now: float) -> Copy | None:
        """What should have come before this copy."""
        for earlier in session.pending[: session.pending.index(copy)]:
            is_there = session.takes(earlier) and earlier.is_due(now)
            if is_there and earlier.qos and not earlier.retain and earlier.step < copy.step:
                return earlier
        return None

    def _exchanged(self, session: Session, fields: dict[str, Any]) -> Copy | None:
        """The copy of a group that was taken for that of another group when another member had it."""
        for other, copy in self.given:
            mine = copy.shared
            if mine is None or copy.body != fields["body"] or mine.key() not in session.shared:
                continue
            for theirs in [self.groups[key] for key in other.shared]:
                for waiting in theirs.pending:
                    if waiting.body == copy.body and waiting.topic == copy.topic:
                        theirs.pending.remove(waiting)
                        copy.shared = theirs
                        return replace(copy, shared=mine, qos=fields["qos"])
        return None

    @staticmethod
    def _differs(copy: Copy, fields: dict[str, Any]) -> str:
        if copy.any_options:
            copy.qos = fields["qos"]
            return ""
        if copy.qos == 3:
            copy.qos = fields["qos"]
        for name in ("qos", "retain", "identifiers"):
            told = sorted(fields[name]) if name == "identifiers" else fields[name]
            if told != getattr(copy, name):
                return f"{name} {told} instead of {getattr(copy, name)}"
        return ""

    def _repeated(self, session: Session, fields: dict[str, Any], what: str) -> Copy:
        for copy in session.repeats:
            if copy.body == fields["body"] and copy.packet_id == fields["packet_id"]:
                session.repeats.remove(copy)
                return self._sent(session, copy, fields)
        for copy in session.pending:
            if copy.again and copy.body == fields["body"] and copy.topic == fields["topic"]:
                session.pending.remove(copy)
                return self._sent(session, copy, fields)
        returned = [  # by this very session, with the QoS that one of its groups gives it
            (_granted(copy.qos, way.qos) != fields["qos"], group, copy)
            for group, way in [(self.groups[key], way) for key, way in session.shared.items()]
            for copy in group.pending
            if copy.again and copy.body == fields["body"] and copy.topic == fields["topic"]
        ]
        for _, group, copy in sorted(returned, key=lambda one: one[0])[:1]:
            group.pending.remove(copy)
            again = replace(copy, qos=fields["qos"], shared=group)
            self.given.append((session, again))
            return self._sent(session, again, fields)
        for copy in session.repeats:  # taken for that of a group, which came under another packet identifier
            if copy.perhaps_shared and copy.body == fields["body"] and copy.topic == fields["topic"]:
                session.repeats.remove(copy)
                return self._sent(session, copy, fields)
        raise Mismatch(f"{what} again, although it was not waiting for an acknowledgement")

    @staticmethod
    def _sent(session: Session, copy: Copy, fields: dict[str, Any]) -> Copy:
        copy.packet_id = fields["packet_id"]
        if copy.qos:
            if session.window() <= 0:
                raise Mismatch(f"{copy.body!r} to {session.client} beyond its Receive Maximum")
            session.in_flight.append(copy)
        return copy

    def acknowledged(self, session: Session, packet_id: int) -> None:
        for copy in [copy for copy in session.in_flight if copy.packet_id == packet_id]:
            session.in_flight.remove(copy)
            session.recent.append((time.time(), copy))

    def held_release(self, session: Session, packet_id: int) -> None:
        """A message was received, and PUBREL is not answered for now."""
        copy = next(copy for copy in session.in_flight if copy.packet_id == packet_id)
        session.in_flight.remove(copy)
        session.releasing[packet_id] = copy

    def released(self, session: Session, packet_id: int, *, completed: bool) -> None:
        """QoS 2 is complete: it must not come again, whatever happens. `completed`: PUBREL was answered."""
        session.unreleased.discard(packet_id)
        copy = session.maybe_unreleased.pop(packet_id, None)
        if copy is not None:
            session.releasing[packet_id] = copy
        if completed and (copy := session.releasing.pop(packet_id, None)) is not None:
            session.completed.append((time.time(), copy))
        over = [(at, one) for at, one in session.recent if one.qos == 2 and one.packet_id == packet_id]
        session.recent = [pair for pair in session.recent if pair not in over]
        session.completed += [(time.time(), one) for _, one in over]

    def copies(self) -> list[Copy]:
        """All that wait."""
        holders = [*self.sessions.values(), *self.groups.values()]
        return [copy for holder in holders for copy in holder.pending]

    def settled(self) -> None:
        """The clients have what they take: what was too large for them is over, or will be."""
        self.given.clear()
        for group in self.groups.values():
            there = {member.client for member in self.members(group) if member.connected}
            for copy in group.pending:
                kept_for_all = self.lasts(group) and not copy.waits_with & there
                copy.waits_with = set() if kept_for_all else copy.waits_with & there or there
        for session in self.sessions.values():
            if session.connected:
                for copy in [*session.repeats, *session.pending]:
                    # what is too large is over once it was read, which may be after the next connection
                    copy.required = copy.required and session.takes(copy)

    def owed(self) -> str | None:
        """What somebody should have been sent by now."""
        now = time.time()
        for session in self.sessions.values():
            if not session.connected:
                continue
            for packet_id in session.unreleased:
                return f"PUBREL {packet_id} again to {session.client}"
            for copy in session.repeats:
                if copy.is_due(now) and session.takes(copy) and session.window() > 0:
                    return f"{copy.body!r} again to {session.client}"
            for copy in session.pending:
                if copy.is_due(now) and session.takes(copy) and (not copy.qos or session.window() > 0):
                    return f"{copy.body!r} on {copy.topic} to {session.client}"
        for group in self.groups.values():
            there = [member for member in self.members(group) if member.connected]
            for copy in group.pending:
                with_it = [member.window() > 0 for member in there if member.client in copy.waits_with]
                has_room = all(with_it) if with_it else any(member.window() > 0 for member in there)
                if copy.is_due(now) and has_room:
                    return f"{copy.body!r} on {copy.topic} to a member of $share/{group.name}"
        return None
