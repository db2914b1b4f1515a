"""What MQTT sessions are sent from ordinary topics: a list of copies for each, and for each shared group."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from tests.whole.queues import UNWRITTEN_S, Mismatch
from tests.whole.routes import filter_matches


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

    `packet_id`: under which it was sent; `shared`: the group it was sent for.
    """

    body: str
    topic: str
    qos: int
    retain: bool
    identifiers: list[int]
    required: bool = True
    packet_id: int = 0
    again: bool = False
    stored: bool = False
    expires: float | None = None
    step: int = 0
    shared: SharedGroup | None = None
    any_options: bool = False


@dataclass(eq=False)
class Session:
    """A client's session. `window()` of a connected client: how many more of QoS 1 and 2 it may be sent.

    `kept`: it lasts, or did under an earlier connection.
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
    queue_in_flight: int = 0
    recent: list[tuple[float, Copy]] = field(default_factory=list)
    queue_filters: dict[str, tuple[str, bool, int, str]] = field(default_factory=dict)

    def window(self) -> int:
        return self.receive_maximum - len(self.in_flight) - self.queue_in_flight


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


class Sessions:
    """All sessions of a virtual host, and the retained messages."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.groups: dict[tuple[str, str], SharedGroup] = {}
        self.retained: dict[str, list[Retained]] = {}
        self.step = 0

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
    ) -> int:
        """Make the copies; how many sessions and groups are to have one (-1: none, but it may seem so).

        `qos` 3: whatever it comes with. `by_topics`: what filters have to match, if not `topic`: each session
        has one copy, under `topic`, however many of them match, as with RabbitMQ.
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
            takers += self._copy(session, ways, topic, body, qos, retain, required)
        for group in self.groups.values():
            if matches(group.topic_filter) and self.members(group):
                takers += self._share(group, topic, body, qos, retain, required)
        if retain:
            if not body:
                self.retained.pop(topic, None)
            else:
                kept = Retained(body, qos, required)
                self.retained[topic] = [kept] if required else [*self.retained.get(topic, []), kept]
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
    ) -> int:
        granted = min(qos, max(way.qos for way in ways))
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
        )
        session.pending.append(copy)
        return 1

    def _share(
        self, group: SharedGroup, topic: str, body: str, qos: int, retain: bool, required: bool
    ) -> int:
        there = any(member.connected for member in self.members(group))
        if not there and not (qos and self.lasts(group)):
            return 0
        group.pending.append(Copy(body, topic, qos, retain, [], required, step=self.step, shared=group))
        return 1

    # ---- subscribe

    def subscribe(self, session: Session, topic_filter: str, wanted: Subscription, handling: int) -> None:
        """Take the subscription down, and make the copies of retained messages it brings."""
        if topic_filter.startswith("$share/"):
            _, name, rest = topic_filter.split("/", 2)
            session.shared[name, rest] = wanted
            self.groups.setdefault((name, rest), SharedGroup(name, rest))
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
                session.pending.append(
                    Copy(
                        one.body,
                        topic,
                        min(one.qos, wanted.qos),
                        True,
                        [wanted.identifier] if wanted.identifier else [],
                        one.required and len(kept) == 1,
                        step=self.step,
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
        self, client: str, version: int, *, clean: bool, lasting: bool, receive_maximum: int
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
        old.receive_maximum = receive_maximum
        old.repeats = list(old.in_flight)
        old.in_flight = []
        return old

    def lose(self, client: str) -> None:
        """The connection ended."""
        session = self.sessions.get(client)
        if session is None or not session.connected:
            return
        session.connected = False
        session.in_flight = [*session.repeats, *session.in_flight]
        session.repeats = []
        for copy in [copy for copy in session.in_flight if copy.shared is not None]:
            session.in_flight.remove(copy)
            self._returned(copy)
        if not session.lasting:
            self.end(client)
            return
        session.pending = [copy for copy in session.pending if copy.qos]
        for group in self.groups.values():
            members = self.members(group)
            if not any(member.connected for member in members) and not self.lasts(group):
                group.pending.clear()

    def _returned(self, copy: Copy) -> None:
        """A shared message that its member did not acknowledge goes to another one, or waits."""
        group = copy.shared
        assert group is not None
        if copy.qos == 2:
            copy.required = False
        copy.again = True
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

    def restart(self, *, killed: bool) -> None:
        """The broker ended. After a kill what was acknowledged in the last moment may come again."""
        for session in list(self.sessions.values()):
            self.lose(session.client)
            recent, session.recent = session.recent, []
            for at, copy in recent:
                unsure = killed or copy.qos == 2  # PUBREC was sent, PUBREL did not come
                if unsure and time.time() - at < UNWRITTEN_S:
                    session.pending.append(replace(copy, required=False, any_options=True, again=True))
            if killed:
                for copy in session.in_flight:  # whether it was sent may not have been written
                    copy.again = True
                for copy in session.pending:
                    copy.again = True

    # ---- deliveries

    def delivered(self, session: Session, fields: dict[str, Any], at: float) -> Copy:
        """Check a delivery and take it down. Raises Mismatch."""
        body, topic, qos = fields["body"], fields["topic"], fields["qos"]
        what = f"{body!r} on {topic} with QoS {qos} to {session.client}"
        if fields["dup"]:
            return self._repeated(session, fields, what)
        wrong = "it should not have it"
        if session.version != 5:  # which has no identifiers
            for copy in session.pending:
                copy.identifiers = []
        for position, copy in enumerate(session.pending):
            if copy.body != body or copy.topic != topic:
                continue
            wrong = self._differs(copy, fields)
            if wrong:
                continue
            if qos and copy.required:
                for earlier in session.pending[:position]:
                    if earlier.required and earlier.qos and not earlier.retain and earlier.step < copy.step:
                        raise Mismatch(f"{what}, before {earlier.body!r}")
            session.pending.remove(copy)
            return self._sent(session, copy, fields)
        for key, way in session.shared.items():
            group = self.groups[key]
            for copy in group.pending:
                if copy.body != body or copy.topic != topic:
                    continue
                granted = min(copy.qos, way.qos)
                idents = [way.identifier] if way.identifier and session.version == 5 else []
                wanted = Copy(body, topic, granted, copy.retain and way.as_published, idents)
                wrong = self._differs(wanted, fields)
                if wrong:
                    continue
                group.pending.remove(copy)
                wanted.shared = group
                return self._sent(session, wanted, fields)
        for copy in session.repeats:
            if copy.again and copy.body == body and copy.topic == topic:
                session.repeats.remove(copy)
                return self._sent(session, copy, fields)
        raise Mismatch(f"{what}: {wrong}")

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
        for key in session.shared:
            group = self.groups[key]
            for copy in group.pending:  # returned by this very session
                if copy.again and copy.body == fields["body"] and copy.topic == fields["topic"]:
                    group.pending.remove(copy)
                    return self._sent(session, replace(copy, qos=fields["qos"]), fields)
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

    def released(self, session: Session, packet_id: int) -> None:
        """QoS 2 is complete: it must not come again, whatever happens."""
        session.recent = [
            (at, copy) for at, copy in session.recent if copy.qos != 2 or copy.packet_id != packet_id
        ]

    def owed(self) -> str | None:
        """What somebody should have been sent by now."""
        for session in self.sessions.values():
            if not session.connected:
                continue
            for copy in session.repeats:
                if copy.required:
                    return f"{copy.body!r} again to {session.client}"
            for copy in session.pending:
                if copy.required and (not copy.qos or session.window() > 0):
                    return f"{copy.body!r} on {copy.topic} to {session.client}"
        for group in self.groups.values():
            there = [member for member in self.members(group) if member.connected]
            for copy in group.pending:
                if copy.required and any(member.window() > 0 for member in there):
                    return f"{copy.body!r} on {copy.topic} to a member of $share/{group.name}"
        return None
