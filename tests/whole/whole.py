"""All operations together, the ends of the broker among them, and the end of a sequence."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pamqp import commands

from tests.e2e.raw_mqtt import PUBACK
from tests.whole.amqp10_stream_operations import Amqp10StreamOperations
from tests.whole.clients import ANSWER_TIMEOUT_S, Amqp, Client, Gone, Http, Mqtt, Silent
from tests.whole.interruptions import Interruptions
from tests.whole.policy_operations import PolicyOperations
from tests.whole.queues import HELD, UNWRITTEN_S, Either, Message, Mismatch
from tests.whole.routes import BUILT_IN
from tests.whole.store import left_in_store
from tests.whole.stream_operations import StreamOperations
from tests.whole.vhosts import VhostOperations
from tests.whole.world import Skip

DRAIN = "A9"
EXCHANGES = ("x1", "x2")


class Whole(Amqp10StreamOperations, Interruptions, PolicyOperations, StreamOperations, VhostOperations):
    """Runs sequences against one broker process."""

    # ---- time and the process

    def do_tick(self, name: str, ms: int = 20) -> None:
        """Let time pass: to what is due next, at most `ms`."""
        next_time = self.queues.next_time()
        wait_s = ms / 1000
        if next_time is not None:
            wait_s = min(wait_s, max(next_time - time.time(), 0) + 0.002)
        time.sleep(wait_s)

    def _flood(self, during: dict[str, Any]) -> Callable[[], None] | None:
        """Publish without waiting until so many are confirmed; what is given tells the oracle."""
        name, n, confirmed = during["client"], during["n"], during["confirmed"]
        bodies = [f"m{self.next_number()}" for _ in range(n)]
        self.counts["messages published"] += n
        if name in self.amqp and self.amqp[name].mode == "confirm":
            amqp = self.amqp[name]
            queue = self.queues.queues.get(during["q"])
            if queue is None or queue.settings.max_length is not None or queue.exclusive:
                return None
            messages = [Message(body, queue.name) for body in bodies]
            properties = commands.Basic.Properties(delivery_mode=2)
            numbers = [
                amqp.publish("", queue.name, message.body.encode(), properties) for message in messages
            ]
            self._until(amqp, lambda: sum(number in amqp.confirmed for number in numbers) >= confirmed)

            def queued() -> None:
                now = time.time()
                for number, message in zip(numbers, messages, strict=True):
                    answer = amqp.confirmed.get(number)
                    self.trace.append(f"{now:.4f}   {name} was answered {answer} for {message.body!r}")
                    if not answer:  # it may have been delivered before it was stored
                        message.stored_by = now + UNWRITTEN_S
                    if answer is not False:
                        self.queues.append(queue, message, now, required=bool(answer), loose=True, burst=True)

            return queued
        if name in self.mqtt:
            mqtt, topic = self.mqtt[name], during["topic"]
            ids = [mqtt.publish(topic, body.encode(), 1) for body in bodies]
            self._until(mqtt, lambda: sum((PUBACK, number) in mqtt.answers for number in ids) >= confirmed)

            def heard() -> None:
                for number, body in zip(ids, bodies, strict=True):
                    answer = mqtt.answers.get((PUBACK, number))
                    taken = answer is not None and (not answer or answer[0] < 0x80)
                    message = Message(body, topic, "amq.topic")
                    if not taken:
                        message.stored_by = time.time() + UNWRITTEN_S
                    self._spread(message, topic, 1, False, name, None, burst=True, required=taken)

            return heard
        return None

    @staticmethod
    def _until(client: Client, done: Callable[[], bool]) -> None:
        try:
            client.wait(done, "confirms")
        except (Gone, Silent):
            pass

    def may_restart(self) -> None:
        """Not while there is a virtual host beside, whose world does not follow it."""
        if self.beside is not None:
            raise Skip

    def do_restart(
        self, name: str, kill: bool = False, verify: bool = False, during: dict[str, Any] | None = None
    ) -> None:
        """The broker ends, by SIGTERM or by SIGKILL, and comes back with what it had stored.

        `during`: a client publishes meanwhile, so that it is killed with publishes under way. `verify`: have
        the store verified before the start.
        """
        self.may_restart()
        self._feed()
        self.queues.ends_in_turn = self.workers > 1
        flood = self._flood(during) if kill and during else None
        ends = time.time()
        if kill:
            self.broker.kill9()
        else:
            status = self.broker.stop()
            if status:
                raise Mismatch(f"SIGTERM: exit status {status}")
        for client in self.clients():
            try:
                client.wait(lambda: False, "end")
            except Gone:
                pass
        if flood is not None:
            flood()
        self._wills_of_a_stop(killed=kill)
        for amqp_name in list(self.amqp):
            self._feed_before_close(amqp_name)
            self.amqp.pop(amqp_name).drop()
            self.held[amqp_name].clear()
        self.lose_amqp10(killed=kill)
        self._feed_mqtt()
        for mqtt_name, client in list(self.mqtt.items()):
            self.ended_unread(mqtt_name, client)
            client.drop()
            del self.mqtt[mqtt_name]
            self.held[mqtt_name].clear()
        self.leases.clear()
        self.settled_tags.clear()
        self.transactions.clear()
        self.consumers.clear()
        self.readers.clear()
        self.replies.asking.clear()
        self.may_end.clear()
        self.queues.ends_in_turn = False
        now = time.time()
        self.queues.advance(now)  # what was over as the broker ended may have died into a durable queue
        self.sessions.restart(ends, killed=kill)
        self.queues.restart(now, killed=kill)
        self.routes.crash(set(self.queues.queues))
        if verify and (wrong := left_in_store(self.broker.storage)):
            raise Mismatch(f"store verify after the end of the broker: {wrong}")
        self.broker.start()
        self.sessions.restarted()
        self.queues.came_back()
        self.wills.restarted(now)
        self.connect_http()

    def _wills_of_a_stop(self, *, killed: bool) -> None:
        """A stop publishes the wills of who is there, a kill does not; a delayed one of a session that lasts
        waits for the next start.
        """
        for item in self.queues.items():
            item.is_returning = item.state == HELD  # before the wills come, or after
        for name in list(self.wills.connected):
            session = self.sessions.sessions.get(name)
            will = self.wills.leave(name, session if session is not None and session.lasting else None)
            if will is not None and not killed:
                self.publish_will(name, will)

    def connect_http(self) -> None:
        self.http.close()
        self.http = Http(self.broker.ports["http"], self.vhost, self.trace)
        if self.mqcore is not None:
            self.mqcore.close()
            self.mqcore = Http(self.broker.ports["mqcore"], self.vhost, self.trace)

    def wait_gone(self, name: str) -> None:
        """Wait until the broker has seen that a connection ended."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        wanted = self.connections()
        while True:
            _, answer = self.http.call("GET", "/api/v1/connections")
            if answer["total"] <= wanted:
                return
            if time.monotonic() > deadline:
                raise Mismatch(f"{answer['total']} connections, not {wanted}, after {name} has gone")

    # ---- the end

    def finish(self) -> None:
        self.finish_beside()
        for queue in list(self.queues):
            if queue.no_publish or queue.no_deliver:
                self.do_resume("H", queue.name)
        self.settle()
        for name in list(self.amqp10):
            self.do_l_close(name)
            self.settle()
        for name in list(self.amqp):
            self.do_a_close(name)
            self.settle()
        for name in list(self.mqtt):
            if name in self.mqtt:
                self.do_m_close(name)
                self.settle()
        self._drain_sessions()
        self.read_all()
        self._drain_queues()
        self._delete()
        if self.policies.holds_any:
            self.delete_policies()
        self._nothing_left()

    def _drain_sessions(self) -> None:
        self.wait_for_clock()
        for name, session in list(self.sessions.sessions.items()):
            if name not in self.sessions.sessions:
                continue
            session.queue_filters = dict(session.queue_filters)
            self.do_m_open(name, session.version, clean=False, lasting=True)
            self.settle()
            self.wait_for_clock()
        for name in list(self.mqtt):
            self.do_m_close(name)
            self.settle()
        for name in self.client_names:
            if name in self.sessions.sessions:
                self.do_m_open(name, 5, clean=True)
                self.settle()
                self.do_m_close(name)
                self.settle()

    def _drain_queues(self) -> None:
        last = [due for queue in self.queues for due, _ in queue.scheduled]
        if last:
            time.sleep(max(0.0, max(last) - time.time()) + 0.01)
            self.settle()
        if not len(self.queues.queues):
            return
        drain = self.amqp[DRAIN] = Amqp(DRAIN, self.broker.amqp_port, "plain", self.vhost)
        self.held[DRAIN] = {}
        for queue in list(self.queues):
            if self.queues.queues.get(queue.name) is not queue:
                continue
            for group in list(queue.groups.values()):
                name = (group.name or "").split("@")[0]
                self.do_consume(DRAIN, queue.name, name, no_ack=True, pattern=group.pattern)
        self.settle()
        self._wait_either()
        for consumer in [consumer for key, consumer in self.consumers.items() if key[0] == DRAIN]:
            del self.consumers[consumer.client, consumer.tag]
            consumer.group.consumers.remove(consumer)
        drain.close()
        del self.amqp[DRAIN]
        self.wait_gone(DRAIN)
        for queue in list(self.queues):
            if queue.settings.auto_delete:
                self.left(queue)

    def _wait_either(self) -> None:
        """What is in one of two places has to show up in one of them."""
        deadline = time.monotonic() + 4.0
        while True:
            open_ = {item.either for item in self.queues.items() if item.either is not None}
            due: list[Either] = [either for either in open_ if either is not None and either.required]
            if not due:
                return
            if time.monotonic() > deadline:
                bodies = sorted({item.message.body for either in due for item in either.items})
                raise Mismatch(f"lost: {bodies} came neither from their queue nor where dead letters go")
            time.sleep(0.02)
            self.settle()

    def _delete(self) -> None:
        for queue in list(self.queues):
            self.expect((200, 204), "DELETE", f"/api/v1/queues/{queue.name}")
            self.forget_queue(queue.name)
        for exchange in list(self.routes.exchanges):
            if exchange not in BUILT_IN and exchange in self.routes.exchanges:  # or gone with another
                self.expect((200, 204), "DELETE", f"/api/v1/exchanges/{exchange}")
                self.routes.drop_exchange(exchange)
        if self.routes.bindings:  # between exchanges that are always there
            self.do_a_open(DRAIN)
            for binding in list(self.routes.bindings):
                self.do_unbind(
                    DRAIN, binding.source, binding.key, to=binding.target, args=dict(binding.arguments)
                )
            self.do_a_close(DRAIN)
        if self.sessions.retained:
            self.do_m_open("M9")
            for topic in list(self.sessions.retained):
                self.do_mpub("M9", topic, retain=True, empty=True)
            self.do_m_close("M9")
            self.settle()

    def _nothing_left(self) -> None:
        for what in ("queues", "sessions", "retained"):
            answer = self.expect(200, "GET", f"/api/v1/{what}")
            if answer["total" if "total" in answer else "items"]:
                raise Mismatch(f"left over: {what} {answer['items']}")
        if answer := self.expect(200, "GET", "/api/v1/bindings"):
            raise Mismatch(f"left over: bindings {answer}")
        left = [found["name"] for found in self.expect(200, "GET", "/api/v1/exchanges")]
        if set(left) - {*BUILT_IN, "amq.rabbitmq.event"}:
            raise Mismatch(f"left over: exchanges {left}")

    def clear_away(self) -> bool:
        """After a mismatch: delete all there is; whether nothing is left."""
        try:
            self.clear_beside()
            for client in self.clients():
                client.drop()
            self.amqp.clear()
            self.amqp10.clear()
            self.mqtt.clear()
            self.wait_gone("everybody")
            for name in self.client_names:
                Mqtt(name, self.broker.mqtt_port, 5, clean=True).disconnect()
            self.wait_gone("everybody")
            for queue in self.expect(200, "GET", "/api/v1/queues")["items"]:
                self.http.call("DELETE", f"/api/v1/queues/{queue['name']}")
            for binding in self.expect(200, "GET", "/api/v1/bindings"):
                self.http.call("POST", "/api/v1/bindings/remove", binding)
            for exchange in EXCHANGES:
                self.http.call("DELETE", f"/api/v1/exchanges/{exchange}")
            self.delete_policies()
            cleaner = Mqtt("M9", self.broker.mqtt_port, 5, clean=True)
            for topic in self.retained_topics:
                cleaner.reason_of(cleaner.publish(topic, b"", 1, retain=True), 1)
            cleaner.disconnect()
            self.wait_gone("everybody")
            self._nothing_left()
        except Exception:
            return False
        finally:
            self.reset()
        return True

    def reset(self) -> None:
        """Close what is open."""
        for client in self.clients():
            client.drop()
        self.http.close()
        if self.mqcore is not None:
            self.mqcore.close()
