"""The operations of MQTT clients, each with what the oracle says of its answer."""

from __future__ import annotations

import time
from typing import Any

from tests.whole.clients import Mqtt
from tests.whole.queues import HELD, Consumer, Item, Message, Mismatch, Queue, Settings
from tests.whole.routes import Route
from tests.whole.sessions import Subscription
from tests.whole.world import Skip, World

SUCCESS, NO_SUBSCRIBERS, QUOTA = 0x00, 0x10, 0x97


def queue_filter(version: int, q: str, group: str, pattern: str) -> str:
    """What a client subscribes to; 3.1.1 names its group by `$share`."""
    return f"$share/{group}/$queue/{q}/{pattern}" if group and version != 5 else f"$queue/{q}/{pattern}"


class MqttOperations(World):
    """`do_...` of MQTT; the client is an `M...`, which is its client identifier."""

    tells_nobody = True  # by 0x10, at QoS 2, too

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.wills: dict[str, dict[str, Any]] = {}
        self.delayed_wills: list[tuple[str, float, dict[str, Any]]] = []

    # ---- connections

    def do_m_open(
        self,
        name: str,
        version: int = 5,
        clean: bool = True,
        lasting: bool = False,
        receive_maximum: int = 0,
        hold: bool = False,
        will: dict[str, Any] | None = None,
    ) -> None:
        """CONNECT, also of a client that is there: it takes over."""
        if version != 5:
            lasting, receive_maximum = not clean, 0
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
        expiry = 600 if lasting else 0
        client = Mqtt(
            name,
            self.broker.mqtt_port,
            version,
            clean=clean,
            expiry_s=expiry,
            receive_maximum=receive_maximum,
            hold=hold,
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
        if client.present != wanted_present:
            raise Mismatch(f"CONNACK says session present {client.present}, not {wanted_present}")
        session = self.sessions.start(
            name, version, clean=clean, lasting=lasting, receive_maximum=receive_maximum or 65_535
        )
        session.queue_in_flight = 0
        self.mqtt[name] = client
        self.held[name] = {}
        if will is not None:
            self.wills[name] = will
        if session.queue_filters:
            for queue_name, options in list(session.queue_filters.items()):
                self._consume(name, client, queue_name, *options)

    def _feed_only(self, name: str, client: Mqtt) -> None:
        events, client.events = client.events, []
        for event in events:
            self._mqtt_event(name, client, event)

    def _feed_mqtt(self) -> None:
        for name, client in list(self.mqtt.items()):
            self._feed_only(name, client)

    def do_m_close(self, name: str, rude: bool = False, with_will: bool = False) -> None:
        """DISCONNECT, or (`rude`) just the end of the connection."""
        client = self.need_mqtt(name)
        self._feed_mqtt()
        if rude:
            client.drop()
        else:
            client.disconnect(with_will=with_will)
        self.lost_mqtt(name, will=rude or (with_will and client.version == 5))
        self.wait_gone(name)

    def _will(self, name: str, *, published: bool) -> None:
        will = self.wills.pop(name, None)
        if will is None or not published:
            return
        message = Message(will["body"], will["topic"], "amq.topic")
        self._spread(message, will["topic"], will["qos"], will.get("retain", False), name, None)

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
        refused = queue is not None and queue.exclusive is not None
        if refused:
            raise Skip
        if queue is None:
            queue = self.queues.queues[q] = Queue(q, Settings(durable=False), auto_created=True)
        explicit = explicit and bool(group) and qos > 0
        user = {}
        if group and client.version == 5:
            user = {"consumer-group": group, "ack": "explicit" if explicit else "puback"}
        topic = queue_filter(client.version, q, group, pattern)
        held = queue.groups.get((group or name) if pattern == "#" else f"{group or name}@{pattern}")
        if held is not None and any(consumer.exclusive for consumer in held.consumers):
            raise Skip
        self._consume(name, client, q, group, explicit, qos, pattern)
        session.queue_filters[q] = (group, explicit, qos, pattern)
        code = client.subscribe(topic, qos, user=user)
        if code != qos:
            raise Mismatch(f"SUBACK {code:#x}, not {qos}")

    def _consume(
        self, name: str, client: Mqtt, q: str, group: str, explicit: bool, qos: int, pattern: str
    ) -> None:
        session = self.sessions.sessions[name]
        explicit = explicit and client.version == 5  # a session that 3.1.1 resumes settles by PUBACK
        queue = self.queues.queues.get(q)
        if queue is None:
            queue = self.queues.queues[q] = Queue(q, Settings(durable=False), auto_created=True)
        made = queue.group(group or name, time.time(), pattern)

        def credit() -> float:
            held = sum(item.state == HELD and item.holder is consumer for item in made.items)
            return min(session.window(), session.receive_maximum - held) if explicit else session.window()

        takes = "hold" if qos else "done"
        consumer = Consumer(name, q, queue, made, takes, credit if qos else lambda: float("inf"), told=True)
        consumer.explicit = explicit
        self.consumers[name, q] = consumer
        made.consumers.append(consumer)

    def do_qunsub(self, name: str, q: str) -> None:
        client = self.need_mqtt(name)
        consumer = self.consumers.get((name, q))
        if consumer is None:
            raise Skip
        session = self.sessions.sessions[name]
        group, _, _, pattern = session.queue_filters.pop(q)
        topic = queue_filter(client.version, q, group, pattern)
        client.unsubscribe(topic)
        self._feed_mqtt()
        del self.consumers[name, q]
        self.queues.leave(consumer, time.time())
        self.left(consumer.queue)

    # ---- publish

    def do_mpub(
        self, name: str, topic: str, qos: int = 1, retain: bool = False, n: int = 1, empty: bool = False
    ) -> None:
        """Publish to an ordinary topic."""
        client = self.need_mqtt(name)
        bodies = ["" if empty and retain else f"m{self.next_number()}" for _ in range(n)]
        numbers = [client.publish(topic, body.encode(), qos, retain=retain) for body in bodies]
        self.counts["messages published"] += n
        if retain:
            self.retained_topics.add(topic)
        if not qos:
            client.wait(client.ping(), "PINGRESP")
        for number, body in zip(numbers, bodies, strict=True):
            message = Message(body, topic, "amq.topic", durable=qos > 0)
            reason = client.reason_of(number, qos) if qos else None
            self._spread(message, topic, qos, retain, name, reason, version=client.version, burst=n > 1)

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
            target: self.queues.queues[target].verdict(now, burst=burst) for target in sorted(route.queues)
        }
        refused = "refuse" in verdicts.values()
        if reason is not None and version == 5:
            if reason == QUOTA and not refused and "either" not in verdicts.values():
                raise Mismatch(f"{message.body!r} answered {reason:#x}, the oracle says {verdicts}")
            if reason != QUOTA and refused:
                raise Mismatch(f"{message.body!r} answered {reason:#x}, the oracle says {verdicts}")
        elsewhere = {found for found in route.topics if found != topic}
        takers = self.sessions.publish(topic, message.body, qos, retain=retain, by=by, required=required)
        for other in elsewhere:
            takers += self.sessions.publish(other, message.body, qos, by=by, required=required)
        for target, verdict in verdicts.items():
            if verdict == "refuse" or (verdict == "either" and reason == QUOTA and not refused):
                continue
            sure = required and (verdict == "take" or reason == SUCCESS)
            self.queues.append(self.queues.queues[target], message, now, required=sure, burst=burst)
        if reason is not None and version == 5 and reason != QUOTA:
            wanted = SUCCESS if takers or verdicts or retain else NO_SUBSCRIBERS
            if reason != wanted and takers != -1 and self.tells_nobody:
                raise Mismatch(f"{message.body!r} answered {reason:#x}, not {wanted:#x}")

    def do_qpub(self, name: str, q: str, key: str = "", qos: int = 1, n: int = 1) -> None:
        """Publish to `$queue/...`."""
        client = self.need_mqtt(name)
        queue = self.queues.queues.get(q)
        if queue is None:
            queue = self.queues.queues[q] = Queue(q, Settings(durable=False), auto_created=True)
        topic = f"$queue/{q}/{key}" if key else f"$queue/{q}"
        refuses = queue.verdict(time.time()) != "take"
        if n > 1 and queue.settings.max_length is not None and queue.settings.overflow != "drop-head":
            n = 1
        if refuses and client.version != 5:
            raise Skip  # the client would be sent away
        messages = [Message(f"m{self.next_number()}", topic, durable=qos > 0) for _ in range(n)]
        numbers = [client.publish(topic, message.body.encode(), qos) for message in messages]
        self.counts["messages published"] += n
        if not qos:
            client.wait(client.ping(), "PINGRESP")
        for number, message in zip(numbers, messages, strict=True):
            verdict = queue.verdict(time.time(), burst=n > 1)
            if qos:
                reason = client.reason_of(number, qos)
                if client.version == 5 and reason not in (SUCCESS, QUOTA):
                    raise Mismatch(f"{message.body!r} answered {reason:#x}")
                if verdict != "either" and reason != (QUOTA if verdict == "refuse" else SUCCESS):
                    raise Mismatch(f"{message.body!r} answered {reason:#x}, the oracle says {verdict}")
                verdict = "refuse" if reason else "take"
            if verdict != "refuse":
                self.queues.append(queue, message, time.time(), required=verdict == "take", burst=n > 1)

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
            self.sessions.acknowledged(session, fields["packet_id"])
            return
        session.queue_in_flight -= 1
        consumer = queue_item.holder
        del self.held[name][fields["packet_id"]]
        if queue_item.state != HELD or consumer is None:
            return
        if consumer.explicit:
            self.held[name][-fields["packet_id"] - (self.next_number() << 16)] = queue_item
        elif refuse:
            self.queues.back(queue_item, time.time())
        else:
            self.queues.done(queue_item, time.time())

    def _explicit(self, name: str) -> list[Item]:
        """What the client holds of explicit subscriptions."""
        return [
            item
            for _, item in sorted(self.held[name].items())
            if item.state == HELD and item.holder is not None and item.holder.explicit
        ]

    def do_verb(self, name: str, verb: str, i: int = 0, by: str = "") -> None:
        """Settle a delivery of an explicit subscription by a control topic, maybe from another client."""
        found = [
            other for other in (name, *sorted(self.mqtt)) if other in self.mqtt and self._explicit(other)
        ]
        if not found:
            raise Skip
        name = found[0]
        held = self._explicit(name)
        sender = self.need_mqtt(by or name)
        if sender.version != 5:
            raise Skip
        item: Item = held[i % len(held)]
        message_id, group_id, attempts = item.tag
        queue = item.group.queue if item.group else None
        assert queue is not None
        user = {"message-id": message_id, "group-id": group_id, "attempts": attempts}
        number = sender.publish(f"$queue/{queue.name}/${verb}", b"", 1, user=user)
        reason = sender.reason_of(number, 1)
        if reason:
            raise Mismatch(f"${verb} of {item.message.body!r} answered {reason:#x}")
        now = time.time()
        for tag, one in list(self.held[name].items()):
            if one is item and tag < 0:
                del self.held[name][tag]
        if verb == "ack":
            self.queues.done(item, now)
        elif verb == "nack":
            self.queues.back(item, now)
        else:
            self.queues.die(queue, item, "rejected", now)
