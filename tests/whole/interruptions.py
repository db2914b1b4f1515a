"""Operations of MQTT clients that are cut off in the midst, by either side, and taken up again."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import replace

from tests.whole.clients import Gone, Silent
from tests.whole.mqtt_operations import MqttOperations
from tests.whole.queues import Message, Mismatch
from tests.whole.routes import filter_matches
from tests.whole.sessions import Subscription
from tests.whole.world import Skip

SENT, RECEIVED, RELEASED = "sent", "received", "released"  # how far a publish of QoS 2 has come


class Interruptions(MqttOperations):
    """`do_...` of operations with an end of the connection, or of the broker, in between.

    `how`: `drop`, `stop` or `kill`, so many milliseconds (`after_ms`) after the first half was sent.
    """

    @abstractmethod
    def do_restart(self, name: str, kill: bool = False) -> None:
        """The broker ends and comes back."""

    @abstractmethod
    def may_restart(self) -> None:
        """Raise Skip where the broker may not end now."""

    def _cut(self, name: str, how: str, after_ms: int) -> None:
        began = time.time()
        time.sleep(after_ms / 1000)
        self.counts[f"cut off by a {how}"] += 1
        if how == "drop":
            client, session = self.mqtt[name], self.sessions.sessions[name]
            client.drop()
            self._feed_only(name, client)
            self.sessions.may_have_been_sent(session)
            for at, copy in session.recent:  # the broker may not have read that it was acknowledged
                if at >= began:
                    session.pending.append(replace(copy, required=False, any_options=True, again=True))
            self.lost_mqtt(name)
            self.wait_gone(name)
        else:
            self.do_restart("", kill=how == "kill")

    def _to_be_cut(self, name: str, how: str) -> int:
        """The version of a client whose session lasts, and that has no will in the way."""
        if how != "drop":
            self.may_restart()
        client = self.need_mqtt(name)
        if not self.sessions.sessions[name].lasting or name in self.wills.connected:
            raise Skip
        if self.sessions.sessions[name].expiry_s < 60:
            raise Skip
        return client.version

    def do_mpub_cut(
        self, name: str, topic: str, qos: int = 2, how: str = "drop", at: str = SENT, after_ms: int = 0
    ) -> None:
        """Publish, be cut off, come back and finish: at QoS 2 it is there once, at QoS 1 once or twice."""
        version = self._to_be_cut(name, how)
        route = self.routes.route("amq.topic", [topic.replace("/", ".")], {}, set(self.queues.queues))
        count = 2 if qos == 1 else 1  # it is published again
        if self.sessions.verdict(route.topics, qos, count=count) != "take" or any(
            self.queues.queues[q].verdict(time.time()) != "take" for q in route.queues
        ):
            raise Skip
        client = self.mqtt[name]
        body = f"m{self.next_number()}"
        message = Message(body, topic, "amq.topic")
        self._spread(message, topic, qos, False, name, None, required=False)
        number = client.publish(topic, body.encode(), qos)
        try:
            if qos == 2 and at != SENT:
                client.received(number)
                self._is_taken(body)
                if at == RELEASED:
                    client.release(number, wait=False)
        except (Gone, Silent):
            raise Mismatch(f"{body!r} was not answered") from None
        self.counts["messages published"] += 1
        self._cut(name, how, after_ms)
        self.do_m_open(name, version, clean=False, lasting=True)
        client = self.mqtt[name]
        client.next_id = number
        if qos == 1:
            self._spread(message, topic, qos, False, name, None, required=False)
        if at == SENT or qos == 1:
            client.publish(topic, body.encode(), qos, again=number)
        if qos == 1:
            client.reason_of(number, qos)
        else:
            if at == SENT:
                client.received(number)
            client.release(number)
        self._is_taken(body)

    def _is_taken(self, body: str) -> None:
        """The broker has the message: whoever is to have it, and is still there, has to get one."""
        sure = set()
        for holder in [*self.sessions.sessions.values(), *self.sessions.groups.values()]:
            for copy in [copy for copy in holder.pending if copy.body == body and copy.qos]:
                came = copy.again and copy.any_options  # and may have been acknowledged in time
                if holder not in sure and not copy.gave_way and not came and self._keeps(holder):
                    copy.required = True
                    sure.add(holder)
        for session in sure.intersection(self.sessions.sessions.values()):
            self.sessions.hold_to_bounds(session)

    @staticmethod
    def _keeps(holder: object) -> bool:
        return getattr(holder, "lasting", False) and not getattr(holder, "packet_maximum", 0)

    def do_sub_cut(
        self, name: str, topic: str, qos: int = 1, how: str = "drop", after_ms: int = 0, handling: int = 0
    ) -> None:
        """Send SUBSCRIBE, be cut off, come back and subscribe again."""
        version = self._to_be_cut(name, how)
        options = qos | (handling << 4 if version == 5 else 0)
        session = self.sessions.sessions[name]
        known = {id(copy) for copy in session.pending}
        self.sessions.subscribe(session, topic, Subscription(qos), handling if version == 5 else 0)
        for copy in session.pending:  # of what is retained
            if id(copy) not in known or filter_matches(topic, copy.topic):
                copy.required, copy.any_options = copy.required and id(copy) in known, True
        self.mqtt[name].begin_subscribe(topic, options)
        self._cut(name, how, after_ms)
        self.do_m_open(name, version, clean=False, lasting=True)
        self.do_sub(name, topic, qos, handling=handling)
