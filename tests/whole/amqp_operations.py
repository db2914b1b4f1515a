"""The operations of AMQP clients, each with what the oracle says of its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pamqp import base, commands

from tests.whole.clients import Amqp, Event, Gone
from tests.whole.identities import NEW, REFUSED, REPEATED, UNKNOWN, Identities, Identity
from tests.whole.queues import EARLY_S, HELD, UNWRITTEN_S, Consumer, Item, Message, Mismatch, Queue
from tests.whole.replies import REPLY_TO
from tests.whole.routes import Binding, Exchange, Route
from tests.whole.settings import Settings
from tests.whole.streams import Stream
from tests.whole.world import Skip, World, deaths_told


@dataclass
class Transaction:
    """What a channel in tx mode has published and settled since its last commit."""

    publishes: list[tuple[Message, dict[str, Any]]] = field(default_factory=list)
    settled: list[tuple[str, list[tuple[int, Item]]]] = field(default_factory=list)


class AmqpOperations(World):
    """`do_...` of AMQP; the client is an `A...`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.transactions: dict[str, Transaction] = {}

    def ask(self, name: str, method: base.Frame, *answers: type, refused: int = 0) -> Any:
        """Call; the answer, or None where the channel is closed with `refused`, as it must then be."""
        if refused and not self.dares:
            raise Skip
        client = self.amqp[name]
        try:
            answer = client.call(method, *answers)
        except Gone:
            if client.closed is None or client.closed[0] != refused:
                raise Mismatch(f"{method.name} answered {client.closed or client.gone}") from None
            self.reopen(name)
            return None
        if refused:
            raise Mismatch(f"{method.name} answered {answer.name}, not {refused}")
        return answer

    def reopen(self, name: str) -> None:
        """The broker closed the channel: everything of it ends; a new one takes its place."""
        client = self.amqp[name]
        self._feed_before_close(name)
        self._undo(name)
        self.forget_channel(name, connection=client.gone is not None)
        if client.gone is not None:
            del self.amqp[name]
            return
        client.open_channel(client.mode)
        if client.mode == "tx":
            self.transactions[name] = Transaction()

    def _feed_before_close(self, name: str) -> None:
        """What was sent before the channel closed was sent."""
        client = self.amqp[name]
        events = self.take_events(client)
        for event in events:
            if event.kind == "deliver":
                self._amqp_event(name, event)

    def _undo(self, name: str) -> None:
        """What a transaction settled and did not commit is held again."""
        transaction = self.transactions.pop(name, None)
        if transaction is not None:
            for _, settled in transaction.settled:
                self.held[name].update(settled)

    # ---- connections

    def do_a_open(self, name: str, mode: str = "confirm") -> None:
        if name in self.amqp:
            raise Skip
        self.amqp[name] = Amqp(name, self.broker.amqp_port, mode, self.vhost)
        self.held[name] = {}
        if mode == "tx":
            self.transactions[name] = Transaction()

    def do_a_close(self, name: str, rude: bool = False) -> None:
        client = self.need_amqp(name)
        if rude:
            client.drop()
        else:
            client.close()
        self._feed_before_close(name)
        if rude:
            self.left_unread(name)
        self._undo(name)
        del self.amqp[name]
        self._gone(name)

    def _gone(self, name: str) -> None:
        """Wait until the broker has seen the end: its consumers are gone from the listings."""
        self.forget_channel(name, connection=True)
        self.wait_gone(name)

    # ---- declarations

    def do_declare(self, name: str, q: str, exclusive: bool = False, **wanted: Any) -> None:
        self.need_amqp(name)
        settings = Settings(**wanted)
        queue = self.queues.queues.get(q)
        refused = 0
        if queue is not None:
            if queue.exclusive not in (None, name):
                refused = 405
            elif queue.auto_created:
                raise Skip
            elif bool(queue.exclusive) != exclusive:
                refused = 405
            elif queue.declared is not None and settings == queue.base:
                raise Skip  # as it is now, not as it was declared
            elif settings != (queue.declared or queue.base):
                refused = 406
        arguments = queue_arguments(settings)
        method = commands.Queue.Declare(
            0, q, False, settings.durable, exclusive, settings.auto_delete, False, arguments
        )
        answer = self.ask(name, method, commands.Queue.DeclareOk, refused=refused)
        if answer is None:
            return
        if queue is None:
            kind = Stream if settings.stream else Queue
            queue = kind(q, settings, self.policies, exclusive=name if exclusive else None)
            self.queues.queues[q] = queue
        self.check_counts(queue, answer)

    def check_counts(self, queue: Queue, answer: Any) -> None:
        """message_count: ready in the default group; if that was never used, in the group with the most."""
        for early_s in (0, EARLY_S):  # something may have died a little before its time as it is known here
            self.queues.advance(time.time() + early_s)  # what came due meanwhile counts
            low, high = queue.groups[""].waiting() if "" in queue.groups else queue.depth()
            if low <= answer.message_count <= high:
                break
        else:
            raise Mismatch(f"{queue.name} says {answer.message_count} messages, not {low}..{high}")
        consumers = queue.consumer_count()
        if answer.consumer_count != consumers:
            raise Mismatch(f"{queue.name} says {answer.consumer_count} consumers, not {consumers}")

    def do_look(self, name: str, q: str) -> None:
        self.need_amqp(name)
        queue = self.queues.queues.get(q)
        is_hidden = queue is not None and queue.exclusive not in (None, name) and name[0] != "L"
        refused = 404 if queue is None else 405 if is_hidden else 0  # management tells of it, as RabbitMQ's
        method = commands.Queue.Declare(0, q, True, False, False, False, False, {})
        answer = self.ask(name, method, commands.Queue.DeclareOk, refused=refused)
        if queue is not None and answer is not None:
            self.check_counts(queue, answer)

    def do_delete(self, name: str, q: str, if_unused: bool = False, if_empty: bool = False) -> None:
        self.need_amqp(name)
        queue = self.queues.queues.get(q)
        refused = 0
        if queue is not None:
            low, high = queue.groups[""].waiting() if "" in queue.groups else queue.depth()
            if if_empty and (low != high or queue.is_due_soon()):
                raise Skip
            if queue.exclusive not in (None, name):
                refused = 405
            elif (if_unused and queue.served()) or (if_empty and low):
                refused = 406
        method = commands.Queue.Delete(0, q, if_unused, if_empty, False)
        answer = self.ask(name, method, commands.Queue.DeleteOk, refused=refused)
        if answer is not None and queue is not None:
            self.settle_old(queue)
            self.forget_queue(q)

    def settle_old(self, queue: Queue) -> None:
        """Deliveries of a queue that were on their way when it was deleted; what comes of the deletion, as
        the wills of clients sent away, is for later.
        """
        self._barrier()
        for name, amqp in self.amqp.items():
            of_it = {
                tag for (client, tag), it in self.consumers.items() if client == name and it.queue is queue
            }
            events = self.take_events(amqp)
            for event in events:
                if event.kind == "deliver" and event.fields["consumer"] in of_it:
                    self._amqp_event(name, event)
                else:
                    amqp.events.append(event)
        for name, mqtt in self.mqtt.items():
            messages, mqtt.events = mqtt.events, []
            for event in messages:
                if event.kind == "deliver" and event.fields["topic"].split("/")[:2] == ["$queue", queue.name]:
                    self._mqtt_event(name, mqtt, event)
                else:
                    mqtt.events.append(event)

    def do_purge(self, name: str, q: str) -> None:
        self.need_amqp(name)
        queue = self.queues.queues.get(q)
        refused = 404 if queue is None else 405 if queue.exclusive not in (None, name) else 0
        answer = self.ask(name, commands.Queue.Purge(0, q), commands.Queue.PurgeOk, refused=refused)
        if answer is not None and queue is not None:
            self.queues.purge(queue, time.time())

    def do_xdeclare(self, name: str, x: str, **wanted: Any) -> None:
        self.need_amqp(name)
        exchange = Exchange(x, **wanted)
        old = self.routes.exchanges.get(x)
        refused = 406 if old is not None and old.declared_as() != exchange.declared_as() else 0
        arguments = {"alternate-exchange": exchange.alternate} if exchange.alternate else {}
        method = commands.Exchange.Declare(
            0,
            x,
            exchange.kind,
            False,
            exchange.durable,
            exchange.auto_delete,
            exchange.internal,
            False,
            arguments,
        )
        answer = self.ask(name, method, commands.Exchange.DeclareOk, refused=refused)
        if answer is not None and old is None:
            self.routes.exchanges[x] = exchange

    def do_xdelete(self, name: str, x: str, if_unused: bool = False) -> None:
        self.need_amqp(name)
        used = any(binding.source == x for binding in self.routes.bindings)
        refused = 406 if if_unused and used else 0
        method = commands.Exchange.Delete(0, x, if_unused, False)
        if self.ask(name, method, commands.Exchange.DeleteOk, refused=refused) is not None:
            self.routes.drop_exchange(x)

    def do_bind(
        self, name: str, x: str, key: str, q: str = "", to: str = "", args: dict[str, Any] | None = None
    ) -> None:
        """Bind the queue `q`, or the exchange `to`, to the exchange `x`."""
        self._bind(name, x, key, q, to, args or {}, bind=True)

    def do_unbind(
        self, name: str, x: str, key: str, q: str = "", to: str = "", args: dict[str, Any] | None = None
    ) -> None:
        self._bind(name, x, key, q, to, args or {}, bind=False)

    def _bind(
        self, name: str, x: str, key: str, q: str, to: str, args: dict[str, Any], *, bind: bool
    ) -> None:
        self.need_amqp(name)
        there = q in self.queues.queues if q else to in self.routes.exchanges
        queue = self.queues.queues.get(q)
        refused = 0 if there and x in self.routes.exchanges else 404
        if not bind and refused:  # unbinding from what is not there is no error
            raise Skip
        binding = Binding(x, bool(q), q or to, key, tuple(sorted(args.items())))
        if not refused and queue is not None and queue.exclusive not in (None, name):
            refused = 405
            if not bind and binding not in self.routes.bindings:
                raise Skip
        method: base.Frame
        if q:
            method = (
                commands.Queue.Bind(0, q, x, key, False, args)
                if bind
                else commands.Queue.Unbind(0, q, x, key, args)
            )
            answer: type = commands.Queue.BindOk if bind else commands.Queue.UnbindOk
        else:
            method = (
                commands.Exchange.Bind(0, to, x, key, False, args)
                if bind
                else commands.Exchange.Unbind(0, to, x, key, False, args)
            )
            answer = commands.Exchange.BindOk if bind else commands.Exchange.UnbindOk
        if self.ask(name, method, answer, refused=refused) is not None:
            if bind:
                self.routes.bind(binding)
            else:
                self.routes.unbind(binding)

    # ---- publish

    def do_pub(
        self,
        name: str,
        x: str,
        key: str,
        n: int = 1,
        mandatory: bool = False,
        user_id: str = "",
        delay_ms: int = 0,
        headers: dict[str, Any] | None = None,
        identifier: str = "",
        producer: str = "",
        sequence: int = 0,
        again: bool = False,
        ask: bool = False,
        **more: Any,
    ) -> None:
        """Publish `n` messages at once.

        `again`: with the body all such publishes of the identity have; `ask`: for a direct reply.
        """
        client = self.need_amqp(name)
        asker = self.replies.asking.get(name) if ask else None
        identity = Identity(identifier, producer, sequence)
        messages = []
        for _ in range(n):
            same = identifier or f"{producer}.{sequence}"
            body = same if again and identity else f"m{self.next_number()}"
            message = Message(body, key, x, headers=dict(headers or {}), identity=identity, **more)
            message.asker = asker
            messages.append(message)
        exchange = self.routes.exchanges.get(x)
        refused = 404 if exchange is None else 403 if exchange.internal else 0
        if user_id not in ("", "guest"):
            refused = refused or 406
        if ask and asker is None:
            if refused:
                raise Skip
            refused = 406
        if refused and not self.dares:
            raise Skip
        numbers = []
        sent = time.time()
        for message in messages:
            table: dict[str, Any] = dict(message.headers)
            if message.cc:
                table["CC"] = message.cc
            if message.bcc:
                table["BCC"] = message.bcc
            if delay_ms:
                table["x-delay"] = delay_ms
            if identifier:
                table["x-deduplication-id"] = identifier
            if producer:
                table |= {"x-producer-id": producer, "x-producer-sequence": sequence}
            properties = commands.Basic.Properties(
                headers=table or None,
                delivery_mode=2 if message.durable else 1,
                priority=message.priority or None,
                expiration=None if message.ttl_ms is None else str(message.ttl_ms),
                user_id=user_id or None,
                reply_to=REPLY_TO if ask else None,
            )
            numbers.append(client.publish(x, key, message.body.encode(), properties, mandatory=mandatory))
            self.counts["messages published"] += 1
        if refused:
            self._refused_publish(name, refused)
            return
        if client.mode == "tx":
            how = {"mandatory": mandatory, "delay_ms": delay_ms}
            self.transactions[name].publishes += [(message, how) for message in messages]
            return
        burst = n > 1
        if client.mode == "plain":
            client.wait(client.barrier(), "answer after a publish")
            for message in messages:
                message.stored_by = time.time() + UNWRITTEN_S
        for number, message in zip(numbers, messages, strict=True):
            answer = client.confirm_of(number) if client.mode == "confirm" else None
            self.published(
                name,
                message,
                answer,
                mandatory=mandatory,
                delay_ms=delay_ms,
                burst=burst,
                sent=sent,
            )

    def _refused_publish(self, name: str, code: int) -> None:
        client = self.amqp[name]
        client.wait(lambda: client.closed is not None, "close of the channel")
        assert client.closed is not None
        if client.closed[0] != code:
            raise Mismatch(f"the publish closed the channel with {client.closed}, not {code}")
        self.reopen(name)

    def route_of(self, message: Message) -> Route:
        keys = [message.key, *message.cc, *message.bcc]
        return self.routes.route(message.exchange, keys, message.headers, set(self.queues.queues))

    def published(
        self,
        name: str,
        message: Message,
        answer: bool | None,
        *,
        mandatory: bool = False,
        delay_ms: int = 0,
        burst: bool = False,
        sent: float = 0.0,
    ) -> None:
        """Compare the confirm (None: there is none) and returns, and give the message to its targets."""
        if message.key.startswith(f"{REPLY_TO}."):
            if answer is False:
                raise Mismatch(f"the reply {message.body!r} was refused")
            heard = self.replies.answer(message.key, message.body)
            self._check_return(name, message, heard, mandatory)
            return
        route = self.route_of(message)
        now = time.time()
        self.queues.advance(now)
        targets = self.queues.in_turn(route.queues)
        known = [queue.identities.judge(message.identity, message.body) for queue in targets]
        if REFUSED in known:
            verdicts = {queue.name: "refuse" for queue in targets}
        elif UNKNOWN in known:
            verdicts = {queue.name: "either" for queue in targets}
        else:
            verdicts = {
                queue.name: "have" if seen == REPEATED else self._room(queue, now, delay_ms, burst)
                for queue, seen in zip(targets, known, strict=True)
            }
        hears = not targets or set(known) <= {NEW, UNKNOWN}
        count = 4 if burst else 1
        room = self.sessions.verdict(route.topics, int(message.durable), count=count) if hears else "take"
        told = {**verdicts, "(sessions)": "either" if delay_ms and room != "take" else room}
        if answer is True and "refuse" in told.values():
            raise Mismatch(f"{message.body!r} was confirmed, the oracle says {told}")
        if answer is False and not {"refuse", "either"} & set(told.values()):
            raise Mismatch(f"{message.body!r} was refused, the oracle says {told}")
        if told["(sessions)"] == "refuse":  # nobody gets what a session refuses
            self.forget_returns(name, message)
            return
        found = 0
        if route.topics and hears:
            topic, qos = message.key.replace(".", "/"), 1 if message.durable else 0
            if delay_ms:  # whether topics hear it, and when, is not promised
                qos = 3
            sure = not delay_ms and (room == "take" or answer is True)
            sure = sure and not (message.identity and set(verdicts.values()) - {"take"})
            if message.asker and any(session.packet_maximum for session in self.sessions.sessions.values()):
                sure = False  # with the address of the asker it may be too large
            found = self.sessions.publish(
                topic, message.body, qos, required=sure, by_topics=route.topics, stored_by=message.stored_by
            )
        if REFUSED not in known:
            self._into_queues(message, verdicts, answer, UNKNOWN in known, room, delay_ms, burst, sent)
        if self.workers > 1 and not hears:
            self._perhaps_elsewhere(message, targets, known, route, delay_ms, sent)
        heard = found > 0 and not delay_ms
        if (delay_ms and route.topics) or (found == -1 and not verdicts):
            self.forget_returns(name, message)
        else:
            self._check_return(name, message, bool(verdicts) or heard, mandatory)

    def _perhaps_elsewhere(
        self,
        message: Message,
        targets: list[Queue],
        known: list[str],
        route: Route,
        delay_ms: int,
        sent: float,
    ) -> None:
        """What one worker does not take by its identity another one may, for its queues and subscribers."""
        if REFUSED in known:
            verdicts = {
                queue.name: "either"
                for queue, seen in zip(targets, known, strict=True)
                if seen in (NEW, UNKNOWN) and not queue.no_publish
            }
            self._into_queues(message, verdicts, False, True, "either", delay_ms, False, sent)
        if route.topics:
            topic = message.key.replace(".", "/")
            qos = 3 if delay_ms else int(message.durable)
            self.sessions.publish(topic, message.body, qos, required=False, by_topics=route.topics)

    @staticmethod
    def _room(queue: Queue, now: float, delay_ms: int, burst: bool) -> str:
        """The verdict of a queue; what comes later counts when it is due."""
        if delay_ms:
            return "refuse" if queue.no_publish else "take"
        return queue.verdict(now, burst=burst)

    def _into_queues(
        self,
        message: Message,
        verdicts: dict[str, str],
        answer: bool | None,
        unknown: bool,
        room: str,
        delay_ms: int,
        burst: bool,
        sent: float,
    ) -> None:
        now = time.time()
        unsure = [target for target, verdict in verdicts.items() if verdict == "either"]
        refusing: list[tuple[Queue, bool]] = []
        for target, verdict in verdicts.items():
            queue = self.queues.queues[target]
            if verdict == "have":
                continue
            if verdict == "either" and answer is False and len(unsure) == 1:
                one_of_many = "refuse" in verdicts.values() or unknown or room != "take"
                verdict = verdict if one_of_many else "refuse"
            if verdict == "refuse":
                queue.identities.had_no_room(message.identity)
                if not delay_ms:
                    refusing.append((queue, True))
                continue
            required = (verdict == "take" and room == "take") or (answer is True and not unknown)
            if required:
                queue.identities.took(message.identity, message.body)
            else:
                queue.identities.lost_track(message.identity)
                if not delay_ms and answer is not True:
                    refusing.append((queue, False))
            if delay_ms:
                item = Item(message, (0, 0), now, required=required, not_before=sent + delay_ms / 1000)
                queue.scheduled.append((now + delay_ms / 1000, item))
                continue
            self.queues.append(queue, message, now, required=required, burst=burst)
        self.queues.all_refused(refusing, message, now)

    def forget_returns(self, name: str, message: Message) -> None:
        """The message may have come back."""
        client = self.amqp[name]
        client.events = [
            event for event in client.events if event.kind != "return" or event.fields["body"] != message.body
        ]

    def _check_return(self, name: str, message: Message, routed: bool, mandatory: bool) -> None:
        client = self.amqp[name]
        back = [event for event in client.events if event.kind == "return"]
        mine = [event for event in back if event.fields["body"] == message.body]
        for event in mine:
            client.events.remove(event)
            if event.fields["code"] != 312:
                raise Mismatch(f"{message.body!r} came back with {event.fields['code']}")
            if "BCC" in event.fields["headers"]:
                raise Mismatch(f"{message.body!r} came back with its BCC")
        if mandatory and not routed and len(mine) != 1:
            raise Mismatch(f"{message.body!r} is mandatory, went nowhere and came back {len(mine)} times")
        if mine and (routed or not mandatory):
            raise Mismatch(f"{message.body!r} came back although it was routed or not mandatory")

    # ---- direct replies

    def do_ask_on(self, name: str, ack: bool = False) -> None:
        """Consume replies; with acknowledgements, or a second time, that is refused."""
        self.need_amqp(name)
        tag = f"r{self.next_number()}"
        method = commands.Basic.Consume(0, REPLY_TO, tag, False, not ack)
        refused = 406 if ack or name in self.replies.asking else 0
        if self.ask(name, method, commands.Basic.ConsumeOk, refused=refused) is not None:
            self.replies.begin(name, tag)

    def do_ask_off(self, name: str) -> None:
        self.need_amqp(name)
        if name not in self.replies.asking:
            raise Skip
        tag = self.replies.asking[name].tag
        self.ask(name, commands.Basic.Cancel(tag), commands.Basic.CancelOk)
        self.replies.end(name)

    def do_answer(self, name: str, i: int = 0, n: int = 1, mandatory: bool = False) -> None:
        """Publish to an address that a request told, also to one that is gone."""
        known = self.replies.known
        if not known:
            raise Skip
        address = known[-1 - i % len(known)].address
        assert address is not None
        self.do_pub(name, "", address, n=n, mandatory=mandatory)

    # ---- transactions

    def do_commit(self, name: str) -> None:
        if self.need_amqp(name).mode != "tx":
            raise Skip
        transaction = self.transactions[name]
        sent = time.time()
        refuse, either = self.commit_verdict(transaction)
        exchanges = self.routes.exchanges
        is_gone = any(message.exchange not in exchanges for message, _ in transaction.publishes)
        client = self.amqp[name]
        try:
            client.call(commands.Tx.Commit(), commands.Tx.CommitOk)
        except Gone:
            code = client.closed[0] if client.closed else 0
            if not (code == 404 and is_gone) and not (code == 406 and (refuse or either)):
                raise
            for _, settled in transaction.settled:
                for tag, item in settled:
                    self.held[name][tag] = item
            self.reopen(name)
            return
        if is_gone or (refuse and not either):
            raise Mismatch("commit-ok, although a queue refuses, or an exchange is gone")
        self.transactions[name] = Transaction()
        burst = len(transaction.publishes) > 1
        for message, how in transaction.publishes:
            self.published(name, message, None, burst=burst, sent=sent, **how)
        for verb, settled in transaction.settled:
            for _, item in settled:
                self._settled(item, verb)

    def commit_verdict(self, transaction: Transaction) -> tuple[bool, bool]:
        """Whether a queue refuses what is to be committed, and whether either answer is right."""
        room: dict[str, int] = {}
        refuse = either = False
        ahead: dict[str, Identities] = {}
        for message, how in transaction.publishes:
            for target in self.route_of(message).queues:
                queue = self.queues.queues[target]
                if message.identity:
                    known = ahead.setdefault(target, queue.identities.copy())
                    verdict = known.judge(message.identity, message.body)
                    refuse = refuse or verdict == REFUSED
                    if verdict == NEW:
                        known.took(message.identity, message.body)
                    either = True
                room[target] = room.get(target, 0) + (not how["delay_ms"])
                limit = queue.settings.max_length
                if queue.no_publish:
                    refuse = True
                elif how["delay_ms"]:  # counts when it is due, which it may be by now
                    either = either or (limit is not None and queue.settings.overflow != "drop-head")
                elif limit is not None and queue.settings.overflow != "drop-head":
                    low, high = queue.depth()
                    either = either or queue.is_due_soon()
                    if low + room[target] > limit:
                        refuse = True
                        either = either or queue.served() or bool(transaction.settled)
                    elif high + room[target] > limit:
                        either = True
        return refuse, either

    def do_rollback(self, name: str) -> None:
        if self.need_amqp(name).mode != "tx":
            raise Skip
        self.ask(name, commands.Tx.Rollback(), commands.Tx.RollbackOk)
        for _, settled in self.transactions[name].settled:
            self.held[name].update(settled)
        self.transactions[name] = Transaction()

    # ---- consume

    def do_get(self, name: str, q: str, no_ack: bool = False) -> None:
        client = self.need_amqp(name)
        queue = self.queues.queues.get(q)
        refused = 404 if queue is None else 405 if queue.exclusive not in (None, name) else 0
        if queue is not None and queue.settings.stream:
            refused = refused or 406
        elif queue is not None:
            now = time.time()
            ready = queue.for_a_get()
            ready = [] if queue.no_deliver else [item for item in ready if item.there_and_alive(now)]
        answer = self.ask(
            name,
            commands.Basic.Get(0, q, no_ack),
            commands.Basic.GetOk,
            commands.Basic.GetEmpty,
            refused=refused,
        )
        if answer is None or queue is None:
            return
        group = queue.group("", time.time())
        if isinstance(answer, commands.Basic.GetEmpty):
            now = time.time()
            due = [item for item in ready if item.expires is None or item.expires > now]
            if due:
                raise Mismatch(f"get-empty, {due[0].message.body!r} waits in {q}")
            return
        event: Event = answer.content
        takes = "done" if no_ack else "hold"
        reader = Consumer(name, "(get)", queue, group, takes, lambda: 1)
        deaths = deaths_told(event.fields["headers"])
        attempt = self.attempt_told(event.fields)
        item = self.queues.delivered(
            reader, event.fields["body"], event.at, event.fields["tag"], deaths, attempt=attempt
        )
        self.check_delivery(item, event.fields)
        if not no_ack:
            self.held[name][event.fields["tag"]] = item
        self.queues.advance(time.time())  # what came due meanwhile counts
        low, high = group.waiting()
        if not low <= event.fields["count"] <= high:
            raise Mismatch(f"get-ok says {event.fields['count']} more wait, not {low}..{high}")
        client.wait(client.barrier(), "answer after basic.get")

    def do_consume(
        self,
        name: str,
        q: str,
        group: str = "",
        no_ack: bool = False,
        prefetch: int = 0,
        exclusive: bool = False,
        pattern: str = "#",
        priority: int = 0,
    ) -> None:
        self.need_amqp(name)
        queue = self.queues.queues.get(q)
        refused = 404 if queue is None else 405 if queue.exclusive not in (None, name) else 0
        if (pattern != "#" and queue is None) or (queue is not None and queue.settings.stream):
            raise Skip  # the address would make it; readers have an operation of their own
        if queue is not None and not refused:
            whole_name = group if pattern == "#" else f"{group}@{pattern}"
            consumers = queue.groups[whole_name].consumers if whole_name in queue.groups else []
            if any(consumer.exclusive for consumer in consumers) or (exclusive and consumers):
                refused = 403
        self.ask(name, commands.Basic.Qos(0, prefetch, False), commands.Basic.QosOk)
        tag = f"c{self.next_number()}"
        arguments: dict[str, Any] = {"x-consumer-group": group} if group else {}
        if priority:
            arguments["x-priority"] = priority
        address = q if pattern == "#" else f"$queue/{q}/{pattern}"
        method = commands.Basic.Consume(0, "", tag, False, no_ack, exclusive, False, arguments)
        method.queue = address  # which the constructor would refuse
        if queue is not None and not refused:
            made = queue.group(group, time.time(), pattern)
            consumer = Consumer(
                name, tag, queue, made, "done" if no_ack else "hold", lambda: float("inf"), told=bool(group)
            )
            consumer.exclusive, consumer.priority, consumer.joined = exclusive, priority, self.queues.step
            if prefetch and not no_ack:
                consumer.credit = self._credit(consumer, prefetch)
            self.consumers[name, tag] = consumer
            made.join(consumer)
        self.ask(name, method, commands.Basic.ConsumeOk, refused=refused)

    @staticmethod
    def _credit(consumer: Consumer, prefetch: int) -> Callable[[], float]:
        def credit() -> float:
            return prefetch - sum(
                item.state == HELD and item.holder is consumer for item in consumer.group.items
            )

        return credit

    def _pick(self, name: str, i: int) -> Consumer:
        mine = [consumer for key, consumer in sorted(self.consumers.items()) if key[0] == name]
        if not mine:
            raise Skip
        return mine[i % len(mine)]

    def do_cancel(self, name: str, i: int = 0) -> None:
        self.need_amqp(name)
        consumer = self._pick(name, i)
        self.ask(name, commands.Basic.Cancel(consumer.tag), commands.Basic.CancelOk)
        consumer.group.consumers.remove(consumer)  # the next single active one may have been served already
        self._feed_before_close(name)
        del self.consumers[name, consumer.tag]
        self.left(consumer.queue)

    # ---- settle

    def _holder(self, name: str) -> str:
        """This client if it holds deliveries, else the first that does."""
        for other in (name, *sorted(self.amqp)):
            if any(item.state in (HELD, "gone") for item in self.held.get(other, {}).values()):
                return other
        raise Skip

    def _tags(self, name: str, i: int, multiple: bool) -> list[tuple[int, Item]]:
        """The delivery at place `i` of those the client holds, with all before it if `multiple`."""
        held = sorted((tag, item) for tag, item in self.held[name].items() if item.state in (HELD, "gone"))
        if not held:
            raise Skip
        place = i % len(held)
        chosen = held[: place + 1] if multiple else [held[place]]
        for tag, _ in chosen:
            del self.held[name][tag]
        return chosen

    def do_ack(self, name: str, i: int = 0, multiple: bool = False) -> None:
        name = self._holder(name)
        chosen = self._tags(name, i, multiple)
        self.amqp[name].tell(commands.Basic.Ack(chosen[-1][0], multiple))
        self._settle(name, chosen, "ack")

    def do_nack(self, name: str, i: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        name = self._holder(name)
        chosen = self._tags(name, i, multiple)
        self.amqp[name].tell(commands.Basic.Nack(chosen[-1][0], multiple, requeue))
        self._settle(name, chosen, "requeue" if requeue else "reject")

    def do_reject(self, name: str, i: int = 0, requeue: bool = False) -> None:
        name = self._holder(name)
        chosen = self._tags(name, i, False)
        self.amqp[name].tell(commands.Basic.Reject(chosen[-1][0], requeue))
        self._settle(name, chosen, "requeue" if requeue else "reject")

    def _settle(self, name: str, chosen: list[tuple[int, Item]], how: str) -> None:
        if self.amqp[name].mode == "tx":
            self.transactions[name].settled.append((how, chosen))
            return
        if how == "requeue":
            self.queues.all_back([item for _, item in chosen if item.state == HELD], time.time())
            return
        for _, item in chosen:
            self._settled(item, how)

    def _settled(self, item: Item, how: str) -> None:
        if item.state != HELD or item.settled_elsewhere(how):
            return
        now = time.time()
        assert item.group is not None
        if how == "ack":
            self.queues.done(item, now)
        elif how == "requeue":
            self.queues.back(item, now)
        else:
            self.queues.die(item.group.queue, item, "rejected", now)

    def do_recover(self, name: str) -> None:
        client = self.need_amqp(name)
        if client.mode == "tx" and self.transactions[name].settled:
            raise Skip
        chosen = sorted((tag, item) for tag, item in self.held[name].items() if item.state == HELD)
        self.held[name].clear()
        client.send_recover()
        self._feed_after_recover(name, chosen)

    def _feed_after_recover(self, name: str, chosen: list[tuple[int, Item]]) -> None:
        now = time.time()
        self.queues.all_back([item for _, item in chosen if not item.settled_elsewhere("recover")], now)
        self.amqp[name].expect(commands.Basic.RecoverOk)


def queue_arguments(settings: Settings) -> dict[str, Any]:
    """The arguments of queue.declare that ask for these settings."""
    arguments: dict[str, Any] = {}
    if settings.stream:
        length = {} if settings.max_length is None else {"x-max-length": settings.max_length}
        return {"x-queue-type": "stream", **length}
    if settings.max_length is not None:
        arguments["x-max-length"] = settings.max_length
        arguments["x-overflow"] = settings.overflow
    if settings.ttl_ms is not None:
        arguments["x-message-ttl"] = settings.ttl_ms
    if settings.dead_exchange is not None:
        arguments["x-dead-letter-exchange"] = settings.dead_exchange
        if settings.dead_key:
            arguments["x-dead-letter-routing-key"] = settings.dead_key
    if settings.attempts_max:
        arguments["x-delivery-limit"] = settings.attempts_max - 1
    if settings.max_priority:
        arguments["x-max-priority"] = settings.max_priority
    if settings.last_value:
        arguments["x-last-value"] = "h"
    if settings.single_active:
        arguments["x-single-active-consumer"] = True
    return arguments
