"""The operations of MQTT clients, each with what the oracle says of its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.whole.clients import Mqtt
from tests.whole.queues import DONE, HELD, READY, UNWRITTEN_S, Consumer, Item, Message, Mismatch, Queue
from tests.whole.routes import Route
from tests.whole.sessions import Subscription
from tests.whole.wills import Will, Wills
from tests.whole.world import Skip, World

SUCCESS, NO_SUBSCRIBERS, REFUSED_TOPIC, QUOTA = 0x00, 0x10, 0x90, 0x97
SOON_S = 0.15  # an operation takes as long as this, mostly: none begins so shortly before something happens
SESSION_ENDS_S = 0.15  # after its time is over
LEASE_S = 30.0  # as queues have it by default
LEASE_ENDS_S = 0.7  # leases are looked at twice a second
LARGE_BYTES = 200


def queue_filter(version: int, q: str, group: str, pattern: str) -> str:
    """What a client subscribes to; 3.1.1 names its group by `$share`."""
    return f"$share/{group}/$queue/{q}/{pattern}" if group and version != 5 else f"$queue/{q}/{pattern}"


class MqttOperations(World):
    """`do_...` of MQTT; the client is an `M...`, which is its client identifier."""

    tells_nobody = True  # by 0x10, at QoS 2, too

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.wills = Wills()
        self.leases: list[tuple[float, Item, Any]] = []
        self.settled_tags: list[tuple[Queue, Any]] = []

    # ---- time

    def wait_for_clock(self) -> None:
        """Sleep over each moment at which something is about to happen by itself, and have it happen."""
        while True:
            soon = time.time() + SOON_S
            found = [one for one in self._moments() if one[0] < soon]
            if not found:
                return
            _, high, happen = min(found, key=lambda one: one[1])
            time.sleep(max(0.0, high + 0.05 - time.time()))
            self.queues.advance(time.time())
            happen()
            self.settle()

    def _moments(self) -> list[tuple[float, float, Callable[[], None]]]:
        """When something happens by itself, at the earliest and at the latest, and what."""
        found: list[tuple[float, float, Callable[[], None]]] = []
        for name, waiting in self.wills.waiting.items():
            found.append((waiting.low, waiting.high, partial(self._will_is_due, name)))
        for name, session in self.sessions.sessions.items():
            if session.ends is not None:
                low, high = session.ends
                found.append((low, high + SESSION_ENDS_S, partial(self._session_ends, name)))
        for low, item, tag in self.leases:
            found.append((low, low + LEASE_ENDS_S, partial(self._lease_ends, low, item, tag)))
        return found

    def _will_is_due(self, name: str) -> None:
        self.publish_will(name, self.wills.waiting.pop(name).will)

    def _session_ends(self, name: str) -> None:
        self.counts["sessions that expired"] += 1
        if name in self.wills.waiting:  # due at the end of the session, at the latest
            self._will_is_due(name)
        self.sessions.end(name)

    def _lease_ends(self, low: float, item: Item, tag: Any) -> None:
        """End a lease, with those that the broker may have ended in the same look at them."""
        self.leases.remove((low, item, tag))
        ended = [(low, item, tag)]
        while more := [lease for lease in self.leases if lease[0] < time.time()]:
            self.leases = [lease for lease in self.leases if lease not in more]
            ended += more
            last = max(low for low, _, _ in more)
            time.sleep(max(0.0, last + LEASE_ENDS_S + 0.05 - time.time()))
        for _, each, its_tag in ended:
            if each.state == HELD and each.tag == its_tag:
                self.counts["leases that ran out"] += 1
                self.queues.lease_ended(each, LEASE_S, time.time())

    def do_wait(self, name: str, ms: int = 1_300) -> None:
        """Let time pass, until something happened by itself."""
        now = time.time()
        times = [low for low, _, _ in self._moments()]
        times += [copy.expires for copy in self.sessions.copies() if copy.expires and copy.expires > now]
        times += [item.expires for item in self.queues.items() if item.expires and item.expires > now]
        if not times:
            raise Skip
        time.sleep(max(0.0, min(ms / 1000, min(times) + 0.02 - now)))
        self.wait_for_clock()

    def do_bounds(self, name: str, n: int, drop: str) -> None:
        """The host has chosen a broker with these bounds for sessions: see `run.Host`."""
        self.sessions.bounds = n, drop

    # ---- connections

    def do_m_open(
        self,
        name: str,
        version: int = 5,
        clean: bool = True,
        lasting: bool = False,
        receive_maximum: int = 0,
        hold: bool = False,
        hold_release: bool = False,
        alias_maximum: int = 0,
        packet_maximum: int = 0,
        expiry_s: int = 600,
        will: dict[str, Any] | None = None,
    ) -> None:
        """CONNECT, also of a client that is there: it takes over. `expiry_s`: if it is `lasting`.

        `hold_release`: if it is to `hold`.
        """
        hold_release = hold and hold_release
        if version != 5:
            lasting, receive_maximum, packet_maximum, expiry_s = not clean, 0, 0, 600
            will = {key: value for key, value in will.items() if key != "delay_s"} if will else None
        if will is not None:
            will = {**will, "body": f"m{self.next_number()}"}
            if will.get("retain"):
                self.retained_topics.add(will["topic"])
        old_session = self.sessions.sessions.get(name)
        old = self.mqtt.get(name)
        if old is not None and old_session is not None:
            self._feed()
        wanted_present = old_session is not None and not clean and (old_session.lasting or old is not None)
        if old is not None and old_session is not None and not old_session.lasting:
            wanted_present = False
        self.client_names.add(name)
        client = Mqtt(
            name,
            self.broker.mqtt_port,
            version,
            clean=clean,
            expiry_s=expiry_s if lasting else 0,
            receive_maximum=receive_maximum,
            hold=hold,
            hold_release=hold_release,
            alias_maximum=alias_maximum,
            packet_maximum=packet_maximum,
            will=will,
        )
        if old is not None:
            # what the old connection was sent until it ended
            old.wait(lambda: old.gone is not None, "end of the connection that was taken over")
            self._feed_only(name, old)
            self.may_end.add(name)
            self.lost_mqtt(name)
        if client.reason:
            raise Mismatch(f"CONNACK {client.reason:#x}")
        if old_session is not None and old_session.may_be_lost and not client.present:
            self.sessions.end(name)
        elif client.present != wanted_present:
            raise Mismatch(f"CONNACK says session present {client.present}, not {wanted_present}")
        session = self.sessions.start(
            name,
            version,
            clean=clean,
            lasting=lasting,
            receive_maximum=receive_maximum or 65_535,
            expiry_s=expiry_s if lasting else 0,
            packet_maximum=packet_maximum,
        )
        due = self.wills.back(name, resumed=client.present)
        if due is not None:
            self.publish_will(name, due)
        session.queue_in_flight = 0
        self.mqtt[name] = client
        self.held[name] = {}
        if will is not None:
            self.wills.connected[name] = Will(**will)
        for queue_name, (group, explicit, qos, pattern) in list(session.queue_filters.items()):
            if self._in_exclusive_use(queue_name, group or name, pattern):  # another one came meanwhile
                del session.queue_filters[queue_name], session.queue_topics[queue_name]
            else:
                self._consume(name, client, queue_name, group, explicit, qos, pattern)

    def _in_exclusive_use(self, q: str, group: str, pattern: str) -> bool:
        """Whether a subscription to the queue is refused, and one of a session that comes back is dropped."""
        queue = self.queues.queues.get(q)
        if queue is None:
            return False
        found = queue.groups.get(group if pattern == "#" else f"{group}@{pattern}")
        is_taken = found is not None and any(consumer.exclusive for consumer in found.consumers)
        return is_taken or queue.exclusive is not None

    def _feed_only(self, name: str, client: Mqtt) -> None:
        events = self.take_events(client)
        for event in events:
            self._mqtt_event(name, client, event)

    def _feed_mqtt(self) -> None:
        for name, client in list(self.mqtt.items()):
            self._feed_only(name, client)

    def do_m_close(
        self, name: str, rude: bool = False, with_will: bool = False, expiry_s: int | None = None
    ) -> None:
        """DISCONNECT, or (`rude`) just the end of the connection. `expiry_s`: new for the session."""
        client = self.need_mqtt(name)
        self._feed_mqtt()
        session = self.sessions.sessions[name]
        if self.workers > 1:  # what another one has may come behind the answer to a PINGREQ
            self.sessions.may_have_been_sent(session)
        if rude:
            client.drop()
        else:
            if not session.lasting or client.version != 5:
                expiry_s = None
            client.disconnect(with_will=with_will, expiry_s=expiry_s)
            if expiry_s is not None:
                session.expiry_s, session.lasting = expiry_s, expiry_s > 0
        self.lost_mqtt(name, will=rude or (with_will and client.version == 5))
        self.wait_gone(name)

    def _will(self, name: str, *, published: bool) -> None:
        if not published:
            self.wills.connected.pop(name, None)
            return
        will = self.wills.leave(name, self.sessions.sessions.get(name))
        if will is not None:
            self.publish_will(name, will)

    def publish_will(self, name: str, will: Will) -> None:
        """To its topic, or into its queue, where nobody is told of a refusal."""
        self.counts["wills published"] += 1
        stored_by = time.time() + UNWRITTEN_S
        if not will.topic.startswith("$queue/"):
            message = Message(will.body, will.topic, "amq.topic", durable=will.qos > 0, stored_by=stored_by)
            self._spread(message, will.topic, will.qos, will.retain, name, None)
            return
        queue = self.queue_or_new(will.topic.split("/")[1])
        verdict = queue.verdict(time.time())
        if verdict != "refuse":
            message = Message(will.body, will.topic, durable=will.qos > 0, stored_by=stored_by)
            self.queues.append(queue, message, time.time(), required=verdict == "take")

    # ---- subscribe

    def do_sub(
        self,
        name: str,
        topic: str,
        qos: int = 1,
        no_local: bool = False,
        as_published: bool = False,
        handling: int = 0,
        identifier: int = 0,
    ) -> None:
        client = self.need_mqtt(name)
        if client.version != 5:
            no_local = as_published = False
            handling = identifier = 0
        if topic.startswith("$share/"):
            no_local = False
        options = qos | no_local << 2 | as_published << 3 | handling << 4
        session = self.sessions.sessions[name]
        wanted = Subscription(qos, no_local, as_published, identifier)
        self.sessions.subscribe(session, topic, wanted, handling)
        code = client.subscribe(topic, options, identifier=identifier)
        if code != qos:
            raise Mismatch(f"SUBACK {code:#x}, not {qos}")

    def do_unsub(self, name: str, topic: str) -> None:
        client = self.need_mqtt(name)
        session = self.sessions.sessions[name]
        self._feed_mqtt()
        there = self.sessions.unsubscribe(session, topic)
        code = client.unsubscribe(topic)
        if client.version == 5 and code != (0x00 if there else 0x11):
            raise Mismatch(f"UNSUBACK {code:#x}, the subscription was {'' if there else 'not '}there")

    def do_qsub(
        self,
        name: str,
        q: str,
        group: str = "",
        explicit: bool = False,
        qos: int = 1,
        pattern: str = "#",
    ) -> None:
        """Subscribe to a queue: as the client's own group, or as `group`."""
        client = self.need_mqtt(name)
        if client.version != 5:
            explicit = False
        session = self.sessions.sessions[name]
        if (name, q) in self.consumers:
            raise Skip
        queue = self.queues.queues.get(q)
        if queue is not None and queue.settings.stream:
            raise Skip
        if queue is None:
            queue = self.queues.queues[q] = self.auto_created(q)
        explicit = explicit and bool(group) and qos > 0
        user = {}
        if group and client.version == 5:
            user = {"consumer-group": group, "ack": "explicit" if explicit else "puback"}
        topic = queue_filter(client.version, q, group, pattern)
        if self._in_exclusive_use(q, group or name, pattern):
            raise Skip
        self._consume(name, client, q, group, explicit, qos, pattern)
        session.queue_filters[q] = (group, explicit, qos, pattern)
        session.queue_topics[q] = topic
        code = client.subscribe(topic, qos, user=user)
        if code != qos:
            raise Mismatch(f"SUBACK {code:#x}, not {qos}")

    def _consume(
        self, name: str, client: Mqtt, q: str, group: str, explicit: bool, qos: int, pattern: str
    ) -> None:
        session = self.sessions.sessions[name]
        explicit = explicit and client.version == 5  # a session that 3.1.1 resumes settles by PUBACK
        queue = self.queue_or_new(q)
        made = queue.group(group or name, time.time(), pattern)

        def credit() -> float:
            held = sum(item.state == HELD and item.holder is consumer for item in made.items)
            return min(session.window(), session.receive_maximum - held) if explicit else session.window()

        takes = "hold" if qos else "done"
        consumer = Consumer(name, q, queue, made, takes, credit if qos else lambda: float("inf"), told=True)
        consumer.explicit = explicit
        self.consumers[name, q] = consumer
        made.join(consumer)

    def do_qunsub(self, name: str, q: str) -> None:
        client = self.need_mqtt(name)
        consumer = self.consumers.get((name, q))
        if consumer is None:
            raise Skip
        session = self.sessions.sessions[name]
        del session.queue_filters[q]
        began = time.time()
        code = client.unsubscribe(session.queue_topics.pop(q))
        if code:
            raise Mismatch(f"UNSUBACK {code:#x}")
        self._feed_mqtt()
        for at, item in self.acknowledged.get(name, []):
            if at >= began and item.group is consumer.group and item.state == DONE:
                self.queues.perhaps_done(item, at)  # behind UNSUBSCRIBE, by which it returned
        del self.consumers[name, q]
        self.queues.leave(consumer, time.time())
        self.left(consumer.queue)

    # ---- publish

    def do_mpub(
        self,
        name: str,
        topic: str,
        qos: int = 1,
        retain: bool = False,
        n: int = 1,
        empty: bool = False,
        alias: int = 0,
        large: bool = False,
        response: str = "",
        expiry_s: int | None = None,
    ) -> None:
        """Publish to an ordinary topic."""
        client = self.need_mqtt(name)
        route = self.routes.route("amq.topic", [topic.replace("/", ".")], {}, set(self.queues.queues))
        if client.version != 5:
            expiry_s, response = None, ""
            full = any(self._may_refuse(q, n) for q in route.queues)
            if full or self.sessions.verdict(route.topics, qos, count=n) != "take":
                raise Skip  # the client would be sent away
        padding = "." * LARGE_BYTES if large else ""
        bodies = ["" if empty and retain else f"m{self.next_number()}{padding}" for _ in range(n)]
        if response:
            self.responses.update(dict.fromkeys(filter(None, bodies), response))
        numbers = [
            client.publish(
                topic,
                body.encode(),
                qos,
                retain=retain,
                alias=alias,
                response=response if body else "",
                expiry_s=expiry_s,
            )
            for body in bodies
        ]
        self.counts["messages published"] += n
        if retain:
            self.retained_topics.add(topic)
        if not qos:
            client.wait(client.ping(), "PINGRESP")
        for number, body in zip(numbers, bodies, strict=True):
            message = Message(body, topic, "amq.topic", durable=qos > 0)
            if expiry_s is not None:
                message.ttl_ms = expiry_s * 1000
            if not qos:
                message.stored_by = time.time() + UNWRITTEN_S
            reason = client.reason_of(number, qos) if qos else None
            self._spread(message, topic, qos, retain, name, reason, version=client.version, burst=n > 1)

    def _may_refuse(self, q: str, n: int) -> bool:
        queue = self.queues.queues[q]
        bounded = queue.settings.max_length is not None and queue.settings.overflow != "drop-head"
        return queue.verdict(time.time()) != "take" or (n > 1 and bounded)

    def _spread(
        self,
        message: Message,
        topic: str,
        qos: int,
        retain: bool,
        by: str,
        reason: int | None,
        *,
        version: int = 0,
        burst: bool = False,
        required: bool = True,
    ) -> None:
        """Give a publish to its subscribers and queues; `reason` is that of its answer, None: it has none."""
        now = time.time()
        message.key = topic.replace("/", ".")
        route: Route = self.routes.route("amq.topic", [message.key], {}, set(self.queues.queues))
        verdicts = {
            target.name: target.verdict(now, burst=burst) for target in self.queues.in_turn(route.queues)
        }
        room = self.sessions.verdict(route.topics, qos, by, 4 if burst else 1)
        if room != "take":
            verdicts["(sessions)"] = room
        refused = "refuse" in verdicts.values()
        if reason is not None and version == 5:
            if reason == QUOTA and not refused and "either" not in verdicts.values():
                raise Mismatch(f"{message.body!r} answered {reason:#x}, the oracle says {verdicts}")
            if reason != QUOTA and refused:
                raise Mismatch(f"{message.body!r} answered {reason:#x}, the oracle says {verdicts}")
        verdicts.pop("(sessions)", None)
        if room == "refuse":
            return
        if room == "either" and reason != SUCCESS:  # a full session has none get it
            required = False
        expires = None if message.ttl_ms is None else now + message.ttl_ms / 1000
        elsewhere = {found for found in route.topics if found != topic}
        more: dict[str, Any] = {"required": required, "expires": expires, "stored_by": message.stored_by}
        found = [
            self.sessions.publish(one, message.body, qos, retain=retain and one == topic, by=by, **more)
            for one in (topic, *elsewhere)
        ]
        takers = max(found) or min(found)
        refusing: list[tuple[Queue, bool]] = []
        for target, verdict in verdicts.items():
            if verdict == "refuse" or (verdict == "either" and reason == QUOTA and not refused):
                refusing.append((self.queues.queues[target], verdict == "refuse"))
                continue
            sure = required and (verdict == "take" or reason == SUCCESS)
            if verdict == "either" and reason != SUCCESS:
                refusing.append((self.queues.queues[target], False))
            self.queues.append(self.queues.queues[target], message, now, required=sure, burst=burst)
        self.queues.all_refused(refusing, message, now)
        if reason is not None and version == 5 and reason != QUOTA:
            wanted = SUCCESS if takers or verdicts or retain else NO_SUBSCRIBERS
            if reason != wanted and takers != -1 and self.tells_nobody:
                raise Mismatch(f"{message.body!r} answered {reason:#x}, not {wanted:#x}")

    def do_qpub(
        self, name: str, q: str, key: str = "", qos: int = 1, n: int = 1, expiry_s: int | None = None
    ) -> None:
        """Publish to `$queue/...`."""
        client = self.need_mqtt(name)
        if client.version != 5:
            expiry_s = None
        queue = self.queue_or_new(q)
        topic = f"$queue/{q}/{key}" if key else f"$queue/{q}"
        refuses = queue.verdict(time.time()) != "take"
        if n > 1 and queue.settings.max_length is not None and queue.settings.overflow != "drop-head":
            n = 1
        if refuses and client.version != 5:
            raise Skip  # the client would be sent away
        messages = [Message(f"m{self.next_number()}", topic, durable=qos > 0) for _ in range(n)]
        for message in messages:
            message.ttl_ms = None if expiry_s is None else expiry_s * 1000
            message.stored_by = 0.0 if qos else time.time() + UNWRITTEN_S
        numbers = [
            client.publish(topic, message.body.encode(), qos, expiry_s=expiry_s) for message in messages
        ]
        self.counts["messages published"] += n
        if not qos:
            client.wait(client.ping(), "PINGRESP")
        for number, message in zip(numbers, messages, strict=True):
            reason = client.reason_of(number, qos) if qos else None
            self.queues.advance(time.time())  # what came due meanwhile may have taken the room
            verdict = queue.verdict(time.time(), burst=n > 1)
            if reason is not None:
                if client.version == 5 and reason not in (SUCCESS, QUOTA):
                    raise Mismatch(f"{message.body!r} answered {reason:#x}")
                if verdict != "either" and reason != (QUOTA if verdict == "refuse" else SUCCESS):
                    raise Mismatch(f"{message.body!r} answered {reason:#x}, the oracle says {verdict}")
                verdict = "refuse" if reason else "take"
            if verdict != "refuse":
                self.queues.append(queue, message, time.time(), required=verdict == "take", burst=n > 1)
            if verdict != "take":
                self.queues.refused(queue, message, time.time(), sure=verdict == "refuse")

    # ---- settle

    def do_mack(self, name: str, i: int = 0, refuse: bool = False) -> None:
        """PUBACK or PUBREC for a delivery that is held; `refuse`: with an error code."""
        holders = [
            other for other in (name, *sorted(self.mqtt)) if other in self.mqtt and self.mqtt[other].unacked
        ]
        if not holders:
            raise Skip
        name = holders[0]
        client = self.mqtt[name]
        event = client.unacked.pop(i % len(client.unacked))
        fields = event.fields
        session = self.sessions.sessions[name]
        queue_item = self.held[name].get(fields["packet_id"])
        refuse = refuse and client.version == 5 and queue_item is not None
        client.settle(event, 0x80 if refuse else 0)
        if fields["qos"] == 2 and not refuse:
            client.wait(
                lambda: any(
                    found.kind == "released" and found.fields["packet_id"] == fields["packet_id"]
                    for found in client.events
                ),
                "PUBREL",
            )
        if queue_item is None:
            if client.hold_release and fields["qos"] == 2:
                self.sessions.held_release(session, fields["packet_id"])
            else:
                self.sessions.acknowledged(session, fields["packet_id"])
            return
        if client.hold_release and fields["qos"] == 2 and not refuse:
            return  # it is done with PUBCOMP
        session.queue_in_flight -= 1
        consumer = queue_item.holder
        del self.held[name][fields["packet_id"]]
        if queue_item.state != HELD or consumer is None or consumer.client != name:
            return  # its lease ended, and another one may have it
        if consumer.explicit:
            self.held[name][-fields["packet_id"] - (self.next_number() << 16)] = queue_item
        elif refuse:
            self.queues.back(queue_item, time.time())
        else:
            self.queues.done(queue_item, time.time())

    def do_mcomp(self, name: str, i: int = 0) -> None:
        """PUBCOMP for what was received and released."""
        found = [other for other in (name, *sorted(self.mqtt)) if self._releasing(other)]
        if not found:
            raise Skip
        name = found[0]
        held = self._releasing(name)
        number = held[i % len(held)]
        client, session = self.mqtt[name], self.sessions.sessions[name]
        client.complete(number)
        if number in self.held[name]:
            self.completed(name, session, self.held[name].pop(number))
            client.wait(client.ping(), "PINGRESP")
        else:
            self.sessions.released(session, number, completed=True)

    def _releasing(self, name: str) -> list[int]:
        """What the client may send PUBCOMP for."""
        if name not in self.mqtt:
            return []
        unreleased, session = self.mqtt[name].unreleased, self.sessions.sessions[name]
        return [number for number in unreleased if number in session.releasing or number in self.held[name]]

    def _explicit(self, name: str) -> list[Item]:
        """What the client holds of explicit subscriptions."""
        return [
            item
            for _, item in sorted(self.held[name].items())
            if item.state == HELD and item.holder is not None and item.holder.explicit
        ]

    def do_verb(
        self, name: str, verb: str, i: int = 0, by: str = "", delay_ms: int = 0, late: bool = False
    ) -> None:
        """Settle a delivery of an explicit subscription by a control topic, maybe from another client.

        `verb` may be `extend`, by 200 ms. `delay_ms`: of `nack`. `late`: name what was settled before.
        """
        if late:
            self._late_verb(by or name, verb, i)
            return
        found = [
            other for other in (name, *sorted(self.mqtt)) if other in self.mqtt and self._explicit(other)
        ]
        if not found:
            raise Skip
        name = found[0]
        held = self._explicit(name)
        sender = self.mqtt[by] if by in self.mqtt else self.mqtt[name]
        if sender.version != 5:
            raise Skip
        item: Item = held[i % len(held)]
        queue = item.group.queue if item.group else None
        assert queue is not None
        more = {}
        if verb == "nack" and delay_ms:
            more = {"delay": str(delay_ms)}
        elif verb == "extend":
            more = {"lease": "200"}
        before = time.time()
        reason = self._control(sender, queue, verb, item.tag, more)
        if reason:
            raise Mismatch(f"${verb} of {item.message.body!r} answered {reason:#x}")
        self.counts[f"${verb}"] += 1
        now = time.time()
        if verb == "extend":
            self.leases = [lease for lease in self.leases if lease[1] is not item]
            self.leases.append((before + 0.2, item, item.tag))
            if item.holder is not None:
                item.holder.late_until = 0.0
            return
        self.settled_tags.append((queue, item.tag))
        for tag, one in list(self.held[name].items()):
            if one is item and tag < 0:
                del self.held[name][tag]
        if verb == "ack":
            self.queues.done(item, now)
        elif verb == "nack":
            self.queues.back(item, now)
            if delay_ms and item.state == READY:
                item.not_before, item.loose = before + delay_ms / 1000, True
        else:
            self.queues.die(queue, item, "rejected", now)

    @staticmethod
    def _control(sender: Mqtt, queue: Queue, verb: str, tag: Any, more: dict[str, str]) -> int:
        """Publish to a control topic; the reason code."""
        message_id, group_id, attempts = tag
        user = {"message-id": message_id, "group-id": group_id, "attempts": attempts, **more}
        return sender.reason_of(sender.publish(f"$queue/{queue.name}/${verb}", b"", 1, user=user), 1)

    def _late_verb(self, name: str, verb: str, i: int) -> None:
        """What names a claim that is settled changes nothing."""
        tags = [
            (queue, tag) for queue, tag in self.settled_tags if self.queues.queues.get(queue.name) is queue
        ]
        sender = self.need_mqtt(name)
        if not tags or sender.version != 5:
            raise Skip
        queue, tag = tags[i % len(tags)]
        if any(item.state == HELD and item.tag == tag for item in self.queues.items()):
            raise Skip  # its attempts were counted anew
        reason = self._control(sender, queue, verb, tag, {"lease": "200"} if verb == "extend" else {})
        if reason != REFUSED_TOPIC:
            raise Mismatch(f"a late ${verb} of {tag} answered {reason:#x}")
        self.counts["late verbs"] += 1
