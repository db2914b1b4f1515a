"""The operations over HTTP: administration, RabbitMQ's API and MQ-Core."""

from __future__ import annotations

import time
from typing import Any

from tests.whole.queues import FAILED, HELD, UNKNOWN, Consumer, Item, Message, Mismatch, Queue
from tests.whole.world import Skip, World

COUNTED_S = 1.0


class HttpOperations(World):
    """`do_...` over HTTP; the client is `H`."""

    def expect(self, wanted: int | tuple[int, ...], method: str, path: str, body: Any = None) -> Any:
        status, answer = self.http.call(method, path, body)
        if status not in ((wanted,) if isinstance(wanted, int) else wanted):
            raise Mismatch(f"{method} {path} {body or ''} answered {status} {answer}, not {wanted}")
        return answer

    def open_queue(self, q: str) -> Queue:
        queue = self.need_queue(q)
        if queue.exclusive:
            raise Skip
        return queue

    def no_stream(self, q: str) -> Queue:
        queue = self.open_queue(q)
        if queue.settings.stream:
            raise Skip
        return queue

    def do_h_pub(self, name: str, q: str, delay_ms: int = 0, n: int = 1) -> None:
        """Publish to a queue by /api/v1."""
        queue = self.open_queue(q)
        for _ in range(n):
            message = Message(f"m{self.next_number()}", q)
            body: dict[str, Any] = {"body": message.body}
            if delay_ms:
                body["headers"] = {"x-delay": delay_ms}
            sent = time.time()
            status, answer = self.http.call("POST", f"/api/v1/queues/{q}/messages", body)
            self.queues.advance(time.time())  # what came due meanwhile may have taken the room
            verdict = queue.verdict(time.time())
            if delay_ms:
                verdict = "refuse" if queue.no_publish else "take"
            self.counts["messages published"] += 1
            allowed = {"take": (200,), "refuse": (422, 503), "either": (200, 422, 503)}[verdict]
            if status not in allowed:
                raise Mismatch(f"{message.body!r} answered {status} {answer}, the oracle says {verdict}")
            if status != 200:
                if not delay_ms:
                    self.queues.refused(queue, message, time.time())
                continue
            now = time.time()
            if delay_ms:
                item = Item(message, (0, 0), now, not_before=sent + delay_ms / 1000)
                queue.scheduled.append((now + delay_ms / 1000, item))
            else:
                self.queues.append(queue, message, now)

    def do_h_rpub(self, name: str, x: str, key: str, n: int = 1, mode: int = 0) -> None:
        """Publish to an exchange by RabbitMQ's API."""
        if x not in self.routes.exchanges or self.routes.exchanges[x].internal:
            raise Skip
        for _ in range(n):
            message = Message(f"m{self.next_number()}", key, x, durable=mode == 2)
            route = self.routes.route(x, [key], {}, set(self.queues.queues))
            status, answer = self.http.call(
                "POST",
                f"/api/exchanges/%2F/{x or 'amq.default'}/publish",
                {
                    "routing_key": key,
                    "payload": message.body,
                    "payload_encoding": "string",
                    "properties": {"delivery_mode": mode} if mode else {},
                },
            )
            self.counts["messages published"] += 1
            self.queues.advance(time.time())  # what came due meanwhile may have taken the room
            verdicts = {target: self.queues.queues[target].verdict(time.time()) for target in route.queues}
            room = self.sessions.verdict(route.topics, int(mode == 2))
            refused = "refuse" in verdicts.values() or room == "refuse"
            unsure = "either" in verdicts.values() or room == "either"
            if (status == 200 and refused) or (status != 200 and not refused and not unsure):
                raise Mismatch(f"{message.body!r} answered {status} {answer}, the oracle says {verdicts}")
            if room == "refuse":  # nobody gets what a session refuses
                continue
            sure = room == "take" or status == 200
            qos = 1 if mode == 2 else 0
            heard = [self.sessions.publish(topic, message.body, qos, required=sure) for topic in route.topics]
            routed = bool(verdicts) or max(heard, default=0) > 0
            if status == 200 and answer["routed"] != routed and (routed or -1 not in heard):
                raise Mismatch(f"{message.body!r} says {answer}, the oracle says {verdicts} and {heard}")
            now, refusing = time.time(), []
            for target, verdict in verdicts.items():
                queue = self.queues.queues[target]
                if verdict != "refuse":
                    sure = (verdict == "take" and room == "take") or status == 200
                    self.queues.append(queue, message, now, required=sure)
                if verdict == "refuse" or (verdict == "either" and status != 200):
                    refusing.append((queue, verdict == "refuse"))
            self.queues.all_refused(refusing, message, now)

    @staticmethod
    def _ready_for_a_get(queue: Queue) -> list[Item]:
        now = time.time()
        ready = queue.for_a_get()
        return [] if queue.no_deliver else [item for item in ready if item.there_and_alive(now)]

    def do_h_get(self, name: str, q: str, count: int = 1, requeue: bool = False) -> None:
        """Take messages by RabbitMQ's API."""
        queue = self.no_stream(q)
        ready = self._ready_for_a_get(queue)
        if requeue and queue.settings.attempts_max:
            raise Skip
        mode = "ack_requeue_true" if requeue else "ack_requeue_false"
        answer = self.expect(
            200, "POST", f"/api/queues/%2F/{q}/get", {"count": count, "ackmode": mode, "encoding": "auto"}
        )
        now = time.time()
        group = queue.group("", now)
        due = [item for item in ready if item.expires is None or item.expires > now]
        if len(answer) < min(count, len(due)):
            raise Mismatch(f"{len(answer)} messages of {q}, {len(due)} wait")
        reader = Consumer("H", "(get)", queue, group, "hold", lambda: count)
        taken = []
        for told in answer:
            item = self.queues.delivered(reader, told["payload"], now, None)
            self.queues.check_attempts(item, max(item.attempts[0], 2) if told["redelivered"] else 1)
            taken.append(item)
        for item in taken:
            if requeue:
                self.queues.back(item, now)
            else:
                self.queues.done(item, now)

    def do_pause(self, name: str, q: str, publish: bool = True, deliver: bool = True) -> None:
        queue = self.open_queue(q)
        self.expect((200, 204), "POST", f"/api/v1/queues/{q}/pause", {"publish": publish, "deliver": deliver})
        both = not publish and not deliver
        self._barrier()
        self._feed()  # what came due just before was sent before
        queue.no_publish = queue.no_publish or publish or both
        queue.no_deliver = queue.no_deliver or deliver or both

    def do_resume(self, name: str, q: str) -> None:
        queue = self.open_queue(q)
        self.expect((200, 204), "POST", f"/api/v1/queues/{q}/resume", {})
        queue.no_publish = queue.no_deliver = False

    def do_h_purge(self, name: str, q: str) -> None:
        queue = self.open_queue(q)
        self.expect((200, 204), "POST", f"/api/v1/queues/{q}/purge")
        self.queues.purge(queue, time.time())

    def do_redrive(self, name: str, q: str, i: int = 0) -> None:
        """Try the failed messages of a group again."""
        queue = self.open_queue(q)
        groups = sorted(group for group in queue.groups if group is not None)
        if not groups:
            raise Skip
        group = queue.groups[groups[i % len(groups)]]
        self.expect(200, "POST", f"/api/v1/queues/{q}/redrive", {"group": group.name})
        now = time.time()
        for item in group.items:
            if item.state == FAILED:
                item.attempts = (0, 0)
                self.queues.back(item, now, counted=False)
                item.loose = True

    def do_counts(self, name: str, q: str) -> None:
        """What is told of each group agrees with the oracle."""
        queue = self.queues.queues.get(q)
        if queue is not None and (queue.exclusive or queue.settings.stream):
            raise Skip
        self.expect(200 if queue else 404, "GET", f"/api/v1/queues/{q}")
        if queue is None:
            return
        groups = self.expect(200, "GET", f"/api/v1/queues/{q}/groups")
        told = {group["group_id"]: group for group in groups}
        wanted = {group for group in queue.groups if group is not None}
        if wanted - set(told) == {""} and not queue.groups[""].consumers:  # made by a get of nothing
            wanted.discard("")
        if set(told) != wanted:
            raise Mismatch(f"{q} has groups {set(told)}, not {wanted}")
        self.queues.advance(time.time())
        for group_name in wanted:
            wrong = self._wrong(queue, group_name, told[group_name])
            deadline = time.monotonic() + COUNTED_S
            while wrong and time.monotonic() < deadline:  # what was just published may be on its way
                groups = self.expect(200, "GET", f"/api/v1/queues/{q}/groups")
                again = {group["group_id"]: group for group in groups}
                self.queues.advance(time.time())
                wrong = self._wrong(queue, group_name, again[group_name])
            if wrong:
                raise Mismatch(wrong)

    @staticmethod
    def _wrong(queue: Queue, group_name: str | None, told: dict[str, Any]) -> str | None:
        items = queue.groups[group_name].items
        now = time.time()
        unsure = sum(not item.there_and_alive(now) for item in items if item.state != "gone")
        counts_all = queue.groups[group_name].counts_what_it_wants()
        for word, state in (("ready", "ready"), ("in_flight", HELD), ("failed", FAILED)):
            count = sum(item.state == state and item.there_and_alive(now) for item in items)
            at_most = count + unsure if word != "ready" or counts_all else UNKNOWN
            if not count <= told[word] <= at_most:
                return f"{queue.name}/{group_name!r} says {told[word]} {word}, not {count}"
        return None

    # ---- MQ-Core

    def do_mq_post(self, name: str, q: str) -> None:
        queue = self.no_stream(q)
        if self.mqcore is None:
            raise Skip
        message = Message(f"m{self.next_number()}", q)
        status, answer, _ = self.mqcore.raw("POST", f"/{q}/messages", message.body.encode())
        self.queues.advance(time.time())  # what came due meanwhile may have taken the room
        verdict = queue.verdict(time.time())
        self.counts["messages published"] += 1
        allowed = {"take": (201,), "refuse": (503,), "either": (201, 503)}[verdict]
        if status not in allowed:
            raise Mismatch(f"{message.body!r} answered {status} {answer!r}, the oracle says {verdict}")
        if status == 201:
            self.queues.append(queue, message, time.time())
        else:
            self.queues.refused(queue, message, time.time())

    def do_mq_take(self, name: str, q: str) -> None:
        """Fetch a message, then delete it."""
        queue = self.no_stream(q)
        if self.mqcore is None:
            raise Skip
        ready = self._ready_for_a_get(queue)
        status, body, headers = self.mqcore.raw("GET", f"/{q}/messages")
        now = time.time()
        group = queue.group("", now)
        if status == 204:
            due = [item for item in ready if item.expires is None or item.expires > now]
            if due:
                raise Mismatch(f"204, {due[0].message.body!r} waits in {q}")
            return
        if status != 200:
            raise Mismatch(f"GET /{q}/messages answered {status} {body!r}")
        reader = Consumer("H", "(mq)", queue, group, "hold", lambda: 1)
        told = {key.lower(): value for key, value in headers.items()}
        attempt = int(told["x-message-attempts"])
        item = self.queues.delivered(reader, body.decode(), now, None, attempt=attempt)
        self.queues.check_attempts(item, attempt)
        path = f"/{q}/messages/{told['x-message-id']}"
        status, answer, _ = self.mqcore.raw("DELETE", path)
        if status != 204:
            raise Mismatch(f"{path} answered {status} {answer!r}")
        self.queues.done(item, time.time())
