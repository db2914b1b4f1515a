"""The operations of AMQP 1.0 clients, each with what the oracle says of its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from pamqp import base, commands

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from tests.e2e.raw_amqp10 import Answer, section
from tests.whole.amqp10_client import LINKS, Amqp10, Link
from tests.whole.amqp_operations import AmqpOperations, Transaction
from tests.whole.clients import Event
from tests.whole.identities import Identity
from tests.whole.queues import HELD, READY, UNWRITTEN_S, Consumer, Deaths, Item, Message, Mismatch, Queue
from tests.whole.routes import Route
from tests.whole.world import Skip

Chosen = list[tuple[int, Item]]
ANYWHERE = "anywhere"  # the link to the anonymous terminus
LARGE_BYTES = 900  # more than one frame of each kind of client takes
OUTCOMES: dict[str, Any] = {
    "accepted": p.Accepted(),
    "released": p.Released(),
    "modified": p.Modified(),
    "failed": p.Modified(delivery_failed=True),
    "undeliverable": p.Modified(undeliverable_here=True),
    "rejected": p.Rejected(),
}
# the descriptor of a filter, its value, and what it accepts
FILTERS: dict[str, tuple[str, Any, Callable[[Message], bool]]] = {
    "jms": (
        "apache.org:selector-filter:string",
        "h = 1 OR h IS NULL AND JMSDeliveryMode = 'NON_PERSISTENT'",
        lambda message: message.headers.get("h") == 1 if "h" in message.headers else not message.durable,
    ),
    "sql": ("amqp:sql-filter", "h <> 1", lambda message: message.headers.get("h") not in (None, 1)),
    "properties": (
        "amqp:application-properties-filter",
        {"h": 2},
        lambda message: message.headers.get("h") == 2,
    ),
}
_STATUSES = {404: 404, 405: 409, 406: 409}  # of management, by the codes of AMQP 0.9.1


class Amqp10Operations(AmqpOperations):
    """`do_...` of AMQP 1.0; the client is an `L...`. What `AmqpOperations` declares, it may declare, too."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.under_way: dict[str, dict[bytes, Transaction]] = {}  # transactions of each client
        self._released_outcome = False  # of the publish that is compared
        self._given_back: list[tuple[float, Item]] = []  # without an attempt, and when

    # ---- connections

    def do_l_open(self, name: str, window: int = 2_048, frame_max: int = c.UINT_MAX) -> None:
        if name in self.amqp10:
            raise Skip
        self.amqp10[name] = Amqp10(
            name, self.broker.amqp_port, self.vhost, window=window, frame_max=frame_max
        )
        self.held[name] = {}
        self.under_way[name] = {}

    def do_l_close(self, name: str, rude: bool = False) -> None:
        client = self._need(name)
        if rude:
            client.drop()
        else:
            client.close()
        self._feed_links(name)
        self._undo_all(name)
        del self.amqp10[name]
        if rude:
            self.left_unread(name)
        else:
            self._unattempted(self.held[name].values())
        self.forget_channel(name, connection=True)
        self.wait_gone(name)

    def do_l_end(self, name: str) -> None:
        """End the session of the links, and begin another."""
        client = self._need(name)
        client.end(LINKS)
        self._feed_links(name)
        self._undo_all(name)
        self._unattempted(self.held[name].values())
        self.forget_channel(name)
        client.begin(LINKS)

    def lose_amqp10(self, *, killed: bool) -> None:
        """The broker has ended; what it sent has been read."""
        now = time.time()
        for name in list(self.amqp10):
            self._feed_links(name)
            self._undo_all(name)
            if not killed:
                self._unattempted(self.held[name].values())
            self.amqp10.pop(name).drop()
            self.held[name].clear()
        for at, item in self._given_back:
            if killed and now - at < UNWRITTEN_S and item.state == READY:
                item.attempts = (item.attempts[0], item.attempts[1] + 1)
        self._given_back.clear()

    def _need(self, name: str) -> Amqp10:
        if name not in self.amqp10:
            raise Skip
        return self.amqp10[name]

    def _unattempted(self, items: Any) -> None:
        """They are about to return, and nobody has tried them."""
        for item in items:
            if item.state == HELD:
                low, high = item.attempts
                item.attempts = (max(low - 1, 0), max(high - 1, 0))
                item.is_untried = True
                self._given_back.append((time.time(), item))

    # ---- what came

    def _feed(self) -> None:
        super()._feed()
        for name in list(self.amqp10):
            self._feed_links(name)
            if self.amqp10[name].gone is not None:
                raise Mismatch(f"{name} was sent away: {self.amqp10[name].gone}")

    def end_step(self) -> None:
        super().end_step()
        for client in self.amqp10.values():
            client.was_full = False

    def _feed_links(self, name: str, only: Link | None = None) -> None:
        """Take down what came, or what of it came on one link."""
        client = self.amqp10[name]
        events = self.take_events(client)
        for event in events:
            if only is None or event.fields["link"] is only:
                self._link_event(name, event)
            else:
                client.events.append(event)

    def settle_old(self, queue: Queue) -> None:
        super().settle_old(queue)
        for name, client in self.amqp10.items():
            of_it = {tag for (of, tag), it in self.consumers.items() if of == name and it.queue is queue}
            events = self.take_events(client)
            for event in events:
                if event.kind == "deliver" and event.fields["link"].name in of_it:
                    self._link_event(name, event)
                else:
                    client.events.append(event)

    def _link_event(self, name: str, event: Event) -> None:
        fields = event.fields
        link: Link = fields["link"]
        if event.kind == "cancel":
            if self.queues.ends_in_turn and fields["error"].condition == c.DETACH_FORCED:
                return  # the worker that has its queue ended before the client's own
            if fields["error"].condition != c.RESOURCE_DELETED:
                raise Mismatch(f"the link {link.name} of {name} ended with {fields['error']}")
            self.cancelled.append((name, link.name))
            return
        consumer = self.consumers.get((name, link.name))
        if consumer is None:
            raise Mismatch(f"{fields['body']!r} to {name}/{link.name}, which is detached")
        if fields["settled"] is not link.is_settled:
            raise Mismatch(f"{fields['body']!r} to {name}/{link.name} is settled: {fields['settled']}")
        told = fields["annotations"].get("x-opt-deaths") or []
        deaths = tuple((one["queue"], str(one["reason"])) for one in told)
        attempt = fields["header"].delivery_count + 1
        item = self.queues.delivered(
            consumer, fields["body"], event.at, fields["tag"], deaths, attempt=attempt
        )
        link.fed += 1
        self._check_told(item, deaths, fields)
        if consumer.takes == "hold":
            self.held[name][fields["tag"]] = item

    def _check_told(self, item: Item, deaths: Deaths, fields: dict[str, Any]) -> None:
        """The header says which attempt it is, annotations where it was sent, and where it died."""
        header: p.Header = fields["header"]
        attempt = header.delivery_count + 1
        self.queues.check_attempts(item, attempt)
        first = attempt == 1 and not item.deaths
        was_given = any(item is given for _, given in self._given_back)
        if header.first_acquirer is not first and not (first and was_given):
            raise Mismatch(
                f"{fields['body']!r} says first-acquirer {header.first_acquirer}, attempt {attempt}"
            )
        if deaths[:1] != item.deaths[-1:]:
            raise Mismatch(f"{fields['body']!r} died {item.deaths}, x-opt-deaths says {deaths}")
        message = item.message
        told = fields["annotations"]
        where = told.get("x-exchange"), str(told.get("x-routing-key")).replace("/", ".")
        if where != (message.exchange, message.key.replace("/", ".")):
            raise Mismatch(f"{fields['body']!r} says {where}, not {(message.exchange, message.key)}")
        if header.durable is not message.durable:
            raise Mismatch(f"{fields['body']!r} says durable {header.durable}, not {message.durable}")
        for key, value in message.headers.items():
            if fields["application"].get(key) != value:
                raise Mismatch(f"{fields['body']!r} has {fields['application']}, not {message.headers}")

    # ---- publish

    def do_l_pub(
        self,
        name: str,
        x: str,
        key: str,
        by: str = "",
        n: int = 1,
        settled: bool = False,
        cc: list[str] | None = None,
        delay_ms: int = 0,
        ttl_ms: int | None = None,
        priority: int = 0,
        durable: bool = True,
        user_id: str = "",
        headers: dict[str, Any] | None = None,
        identifier: str = "",
        large: bool = False,
        tx: bool = False,
    ) -> None:
        """Publish `n` messages at once. `by`: "", `anywhere`, or `$queue` with the queue `x` before `key`."""
        client = self._need(name)
        transaction = self._transaction(name) if tx else None
        if by == "$queue":
            if x not in self.queues.queues:
                raise Skip  # it would be made
            address = f"$queue/{x}/{key}" if key else f"$queue/{x}"
            x, key = "", address
        else:
            address = (
                f"/exchanges/{quote(x, safe='')}/{quote(key, safe='')}"
                if x
                else f"/queues/{quote(key, safe='')}"
            )
        is_there = x in self.routes.exchanges and (bool(x) or by != "" or key in self.queues.queues)
        link = self._sender(name, address if by != ANYWHERE else None, is_there)
        if link is None:
            return
        condition = ""
        if x not in self.routes.exchanges:
            condition = c.NOT_FOUND
        if user_id not in ("", "guest"):
            condition = c.PRECONDITION_FAILED
        if condition and not self.dares:
            raise Skip
        settled = settled and tx is False
        padding = "." * LARGE_BYTES if large else ""
        identity = Identity(identifier)
        messages = [
            Message(
                f"m{self.next_number()}{padding}",
                key,
                x,
                cc=list(cc or []),
                headers=dict(headers or {}),
                priority=priority,
                ttl_ms=ttl_ms,
                durable=durable,
                identity=identity,
            )
            for _ in range(n)
        ]
        to = address if by == ANYWHERE else None
        sent = time.time()
        state = None if transaction is None else p.TransactionalState(transaction[0])
        numbers = [
            client.transfer(
                link, _encoded(message, to, delay_ms, user_id, identifier), settled=settled, state=state
            )
            for message in messages
        ]
        self.counts["messages published"] += n
        if transaction is not None:
            self._published_in(name, transaction, messages, numbers, link, condition, delay_ms)
            return
        if settled:
            self._published_settled(name, link, messages, condition, delay_ms, sent)
            return
        for number, message in zip(numbers, messages, strict=True):
            outcome = client.outcome_of(number, link)
            if condition:
                self._is_rejected(message, outcome, condition)
                continue
            self._outcome(name, message, outcome, delay_ms=delay_ms, burst=n > 1, sent=sent)

    def _sender(self, name: str, address: str | None, is_there: bool) -> Link | None:
        """The link to an address, attached where there is none; None where it is refused."""
        client = self.amqp10[name]
        link_name = address or ANYWHERE
        link = client.link(link_name, client_sends=True)
        if link is not None:
            return link
        if address is not None and not is_there and not self.dares:
            raise Skip
        link = client.attach(link_name, client_sends=True, source=p.Source(), target=p.Target(address))
        if not link.is_detached:
            if address is not None and not is_there:
                raise Mismatch(f"a link to {address} was attached")
            return link
        if is_there or address is None or link.error is None or link.error.condition != c.NOT_FOUND:
            raise Mismatch(f"a link to {address} was refused: {link.error}")
        return None

    @staticmethod
    def _is_rejected(message: Message, outcome: Any, condition: str) -> None:
        if (
            not isinstance(outcome, p.Rejected)
            or outcome.error is None
            or outcome.error.condition != condition
        ):
            raise Mismatch(f"{message.body!r} has the outcome {outcome}, not rejected for {condition}")

    def _outcome(
        self, name: str, message: Message, outcome: Any, *, delay_ms: int, burst: bool, sent: float
    ) -> None:
        if isinstance(outcome, p.Rejected):
            error = outcome.error
            allowed = (c.RESOURCE_LIMIT_EXCEEDED, c.PRECONDITION_FAILED if message.identity else "")
            if error is None or error.condition not in allowed:
                raise Mismatch(f"{message.body!r} has the outcome {outcome}")
            answer = False
        elif isinstance(outcome, p.Accepted | p.Released):
            answer = True
        else:
            raise Mismatch(f"{message.body!r} has the outcome {outcome}")
        self._released_outcome = isinstance(outcome, p.Released)
        self.published(name, message, answer, mandatory=answer, delay_ms=delay_ms, burst=burst, sent=sent)

    def _published_settled(
        self, name: str, link: Link, messages: list[Message], condition: str, delay_ms: int, sent: float
    ) -> None:
        """Nothing is told of what was sent settled, but for what may not be sent at all: its link ends."""
        client = self.amqp10[name]
        client.wait(client.barrier(), "answer after a publish")
        if condition:
            if link.error is None or link.error.condition != condition:
                raise Mismatch(f"the link ended with {link.error}, not for {condition}")
            return
        if link.is_detached:
            raise Mismatch(f"the link to {link.name} ended with {link.error}")
        for message in messages:
            message.stored_by = time.time() + UNWRITTEN_S
        for message in messages:
            self.published(name, message, None, delay_ms=delay_ms, burst=len(messages) > 1, sent=sent)

    def route_of(self, message: Message) -> Route:
        if name := _queue_addressed(message):
            return Route(queues={name} & set(self.queues.queues))
        return super().route_of(message)

    def forget_returns(self, name: str, message: Message) -> None:
        if name not in self.amqp10:
            super().forget_returns(name, message)

    def _check_return(self, name: str, message: Message, routed: bool, mandatory: bool) -> None:
        """What goes nowhere is released."""
        if name not in self.amqp10:
            super()._check_return(name, message, routed, mandatory)
        elif mandatory and self._released_outcome is routed:
            raise Mismatch(f"{message.body!r} was {'released' if routed else 'accepted'}, routed: {routed}")

    def do_l_unsend(self, name: str, i: int = 0) -> None:
        """Detach a link that the client sends on."""
        client = self._need(name)
        links = [link for link in client.links.values() if link.client_sends and link.name[0] in "/$a"]
        if not links:
            raise Skip
        client.detach(links[i % len(links)], closed=bool(i % 2))

    # ---- receive

    def do_l_receive(
        self,
        name: str,
        q: str,
        by: str = "",
        group: str = "",
        settled: bool = False,
        credit: int = 0,
        exclusive: bool = False,
        pattern: str = "#",
        priority: int = 0,
        drain: bool = False,
        filter: str = "",
    ) -> None:
        """Attach a link to a queue. `by`: `$queue`, an address that may have the pattern; `filter`: one of
        FILTERS.
        """
        client = self._need(name)
        queue = self.queues.queues.get(q)
        if (by and queue is None) or (queue is not None and queue.settings.stream):
            raise Skip
        condition = self._refuses_consumer(name, queue, group, pattern, exclusive)
        if condition and not self.dares:
            raise Skip
        tag = f"c{self.next_number()}"
        properties: dict[Any, Any] = {}
        if group:
            properties[t.Symbol("consumer-group")] = group
        if priority:
            properties[t.Symbol("consumer-priority")] = t.Int(priority)
        if exclusive:
            properties[t.Symbol("exclusive")] = True
        address = f"/queues/{q}"
        if by:
            address = f"$queue/{q}" if pattern == "#" else f"$queue/{q}/{pattern}"
        elif pattern != "#":
            properties[t.Symbol("pattern")] = pattern
        link = client.attach(
            tag,
            client_sends=False,
            source=p.Source(address, filter=filters_told(filter)),
            target=p.Target(),
            mode=c.SENDER_SETTLED if settled else c.SENDER_UNSETTLED,
            properties=properties or None,
        )
        if condition or link.is_detached:
            if link.error is None or link.error.condition != condition:
                raise Mismatch(f"attach to {address}: {link.error}, expected: {condition or 'a link'}")
            return
        assert queue is not None
        link.is_settled = settled
        made = queue.group(group, time.time(), pattern)
        takes = "done" if settled else "hold"
        consumer = Consumer(name, tag, queue, made, takes, credit_of(link), told=bool(group))
        consumer.exclusive, consumer.priority, consumer.joined = exclusive, priority, self.queues.step
        consumer.was_full = lambda: client.was_full
        if filter:
            consumer.selects = FILTERS[filter][2]
            if link.answer is None or link.answer.source.filter != filters_told(filter):
                raise Mismatch(f"the filter {filter} of {tag} was not taken: {link.answer}")
        self.consumers[name, tag] = consumer
        made.join(consumer)
        if credit:
            self._give(client, link, credit, drain)

    @staticmethod
    def _refuses_consumer(name: str, queue: Queue | None, group: str, pattern: str, exclusive: bool) -> str:
        """The condition for which a consumer is refused; "": it is not."""
        if queue is None:
            return c.NOT_FOUND
        if queue.exclusive not in (None, name):
            return c.RESOURCE_LOCKED
        whole_name = group if pattern == "#" else f"{group}@{pattern}"
        consumers = queue.groups[whole_name].consumers if whole_name in queue.groups else []
        if any(consumer.exclusive for consumer in consumers) or (exclusive and consumers):
            return c.UNAUTHORIZED_ACCESS
        return ""

    def _pick_link(self, name: str, i: int) -> tuple[Amqp10, Link, Consumer]:
        client = self._need(name)
        consumer = self._pick(name, i)
        link = client.link(consumer.tag, client_sends=False)
        if link is None:
            raise Skip  # it is gone with its queue
        return client, link, consumer

    def do_l_credit(self, name: str, i: int = 0, credit: int = 1, drain: bool = False) -> None:
        """Give a link credit, or take it back; with `drain` what is left of it comes back."""
        client, link, _ = self._pick_link(name, i)
        self._give(client, link, credit, drain)

    def _give(self, client: Amqp10, link: Link, credit: int, drain: bool) -> None:
        before = link.limit
        client.flow(link, credit, drain=drain)
        if not drain:
            self._cross(client, link, before)
            return
        end = link.limit
        client.wait(lambda: link.drained or link.is_detached, "end of a drain")
        if link.count != end and not link.is_detached:
            raise Mismatch(f"the drained link {link.name} counts {link.count}, not {end}")
        link.limit = end
        self._feed_links(client.name)
        left = link.limit - link.fed
        if left > 0 and (due := self._due_to(client.name, link)):
            raise Mismatch(f"drained with {left} left, and {due!r} waits")
        link.fed = link.count = link.limit

    def _cross(self, client: Amqp10, link: Link, before: int) -> None:
        """Take down what crosses a flow that takes credit back: it was sent with what there was before."""
        allowed = link.limit
        if allowed >= before:
            return
        client.wait(client.barrier(), "answer after a flow")
        link.limit = before
        self._feed_links(client.name, link)
        link.limit = allowed

    def _due_to(self, name: str, link: Link) -> str | None:
        """What a link that has credit should have been given."""
        now = time.time()
        self.queues.advance(now)
        consumer = self.consumers.get((name, link.name))
        if consumer is None or consumer.queue.no_deliver:
            return None
        group = consumer.group
        if consumer.queue.settings.single_active and group.active() is not consumer:
            return None
        due = [
            item.message.body
            for item in group.ready()
            if item.there_and_alive(now) and consumer.selects(item.message)
        ]
        return due[0] if due else None

    def do_l_stop(self, name: str, i: int = 0, closed: bool = True) -> None:
        """Detach a link from a queue; what it holds returns."""
        client, link, consumer = self._pick_link(name, i)
        client.detach(link, closed=closed)
        consumer.group.consumers.remove(consumer)  # the next single active one may have been served already
        self._feed_links(name, link)
        del self.consumers[name, consumer.tag]
        mine = [(tag, item) for tag, item in self.held[name].items() if item.holder is consumer]
        items = [item for _, item in mine if item.state == HELD]
        for tag, _ in mine:
            del self.held[name][tag]
        self._unattempted(items)
        self.queues.all_back(items, time.time())
        self.left(consumer.queue)

    # ---- settle

    def do_l_settle(
        self,
        name: str,
        i: int = 0,
        n: int = 1,
        outcome: str = "accepted",
        first: bool = True,
        tx: bool = False,
    ) -> None:
        """Settle deliveries in a row. `first`: this side settles; else it waits until the broker has."""
        holders = [
            other
            for other in (name, *sorted(self.amqp10))
            if any(item.state in (HELD, "gone") for item in self.held.get(other, {}).values())
        ]
        if not holders:
            raise Skip
        name = holders[0]
        client = self.amqp10[name]
        held = sorted((tag, item) for tag, item in self.held[name].items() if item.state in (HELD, "gone"))
        place = i % len(held)
        chosen = held[place : place + n]
        while self._has_of_transaction(name, chosen[0][0], chosen[-1][0]):
            chosen.pop()
        if tx and any(item.group is None for _, item in chosen):
            raise Skip  # of streams
        transaction = self._transaction(name) if tx else None
        for tag, _ in chosen:
            del self.held[name][tag]
        state = OUTCOMES[outcome]
        if transaction is not None:
            state = p.TransactionalState(transaction[0], state)
        client.settle(chosen[0][0], chosen[-1][0], state, settled=first)
        if transaction is not None:
            transaction[1].settled.append((outcome if first else f"{outcome}, not settled", chosen))
            return
        if not first:
            client.wait_told([tag for tag, _ in chosen])
            if wrong := [tag for tag, _ in chosen if client.told.pop(tag) != state]:
                raise Mismatch(f"deliveries {wrong} were settled in another way than {state}")
        self._act(outcome, [item for _, item in chosen])

    def _has_of_transaction(self, name: str, first: int, last: int) -> bool:
        """Whether some of these deliveries are settled in a transaction that is under way."""
        settled = [chosen for one in self.under_way[name].values() for _, chosen in one.settled]
        return any(first <= tag <= last for chosen in settled for tag, _ in chosen)

    def _act(self, outcome: str, items: list[Item]) -> None:
        held = [item for item in items if item.state == HELD]
        now = time.time()
        if outcome in ("released", "modified"):
            self._unattempted(held)
            self.queues.all_back(held, now)
        elif outcome == "failed":
            self.queues.all_back(held, now)
        else:
            for item in held:
                self._settled(item, "ack" if outcome == "accepted" else "reject")

    # ---- transactions

    def _transaction(self, name: str) -> tuple[bytes, Transaction]:
        """The first that is under way; begun where there is none."""
        client = self._need(name)
        under_way = self.under_way[name]
        if not under_way:
            declared = client.command(p.Declare())
            if not isinstance(declared, p.Declared):
                raise Mismatch(f"declare has the outcome {declared}")
            under_way[declared.txn_id] = Transaction()
        return next(iter(under_way.items()))

    def _published_in(
        self,
        name: str,
        transaction: tuple[bytes, Transaction],
        messages: list[Message],
        numbers: list[int],
        link: Link,
        condition: str,
        delay_ms: int,
    ) -> None:
        """Each is told at once what it will be."""
        client = self.amqp10[name]
        for number, message in zip(numbers, messages, strict=True):
            state = client.outcome_of(number, link)
            if not isinstance(state, p.TransactionalState) or state.txn_id != transaction[0]:
                raise Mismatch(f"{message.body!r} of a transaction has the outcome {state}")
            if condition:
                self._is_rejected(message, state.outcome, condition)
                continue
            route = self.route_of(message)
            outcomes = (
                [p.Accepted()] if route.queues else [p.Released()] + [p.Accepted()] * bool(route.topics)
            )
            if state.outcome not in outcomes:
                raise Mismatch(f"{message.body!r} of a transaction was {state.outcome}, not of {outcomes}")
            if state.outcome == p.Accepted():
                transaction[1].publishes.append((message, {"delay_ms": delay_ms}))

    def do_l_begin(self, name: str) -> None:
        self._transaction(name)

    def do_l_discharge(self, name: str, fail: bool = False) -> None:
        """Do what a transaction has, or (`fail`) forget it."""
        client = self._need(name)
        if not self.under_way[name]:
            raise Skip
        txn_id, transaction = next(iter(self.under_way[name].items()))
        self.queues.advance(time.time())
        is_late = any(item.state != HELD for _, chosen in transaction.settled for _, item in chosen)
        if not fail and not is_late:
            addressed = [_queue_addressed(message) for message, _ in transaction.publishes]
            if any(q and q not in self.queues.queues for q in addressed) and not all(addressed):
                raise Skip  # what is published before, by routing key, does not find what is made anew
            for q in addressed:  # queues that were deleted meanwhile are made anew
                if q:
                    self.queue_or_new(q)
        refuse, either = self.commit_verdict(transaction)
        refuse = refuse or is_late  # what was deleted meanwhile, or has come back
        sent = time.time()
        outcome = client.command(p.Discharge(txn_id, fail))
        del self.under_way[name][txn_id]
        if fail:
            if outcome != p.Accepted():
                raise Mismatch(f"a roll-back has the outcome {outcome}")
            self._undo_one(name, transaction)
            return
        if outcome == p.Accepted():
            if refuse and not either:
                raise Mismatch("discharged, although a queue refuses")
            self._committed(name, transaction, sent)
            return
        if not isinstance(outcome, p.Rejected) or outcome.error is None:
            raise Mismatch(f"a discharge has the outcome {outcome}")
        if outcome.error.condition != c.TRANSACTION_ROLLBACK or not (refuse or either):
            raise Mismatch(f"a discharge was rejected: {outcome.error}")
        self._undo_one(name, transaction)

    def _committed(self, name: str, transaction: Transaction, sent: float) -> None:
        client = self.amqp10[name]
        burst = len(transaction.publishes) > 1
        for message, how in transaction.publishes:
            self.published(name, message, None, burst=burst, sent=sent, **how)
        for outcome, chosen in transaction.settled:
            if outcome.endswith(", not settled"):
                client.wait_told([tag for tag, _ in chosen])
            self._act(outcome.split(",")[0], [item for _, item in chosen])

    def _undo_one(self, name: str, transaction: Transaction) -> None:
        """What the client had settled returns as a failed attempt; the rest is unsettled again."""
        for outcome, chosen in transaction.settled:
            if outcome.endswith(", not settled"):
                gone = [item for _, item in chosen if item.holder not in self.consumers.values()]
                self.held[name].update((tag, item) for tag, item in chosen if item not in gone)
                self._unattempted(gone)
                self.queues.all_back([item for item in gone if item.state == HELD], time.time())
            else:
                self.queues.all_back([item for _, item in chosen if item.state == HELD], time.time())

    def _undo_all(self, name: str) -> None:
        for transaction in self.under_way[name].values():
            self._undo_one(name, transaction)
        self.under_way[name].clear()

    # ---- management

    def need_amqp(self, name: str) -> Any:
        return self._need(name) if name[0] == "L" else super().need_amqp(name)

    def ask(self, name: str, method: base.Frame, *answers: type, refused: int = 0) -> Any:
        """See `AmqpOperations`; over AMQP 1.0 by a request to management, which ends nothing."""
        if name[0] != "L":
            return super().ask(name, method, *answers, refused=refused)
        if refused and not self.dares:
            raise Skip
        answer = self._manage(self.amqp10[name], method)
        wanted = (_STATUSES[refused], 400) if refused else (200, 201, 204)
        if answer.status not in wanted:
            raise Mismatch(f"{method.name} answered {answer.status} {answer.body}, not {wanted}")
        if refused:
            return None
        if isinstance(method, commands.Queue.Declare):
            return _Declared(answer)
        return answer

    @staticmethod
    def _manage(client: Amqp10, method: base.Frame) -> Answer:
        match method:
            case commands.Queue.Declare() if method.passive:
                return client.ask("GET", f"/queues/{method.queue}")
            case commands.Queue.Declare():
                body = _declaration(method, "durable", "exclusive", "auto_delete")
                return client.ask("PUT", f"/queues/{method.queue}", body)
            case commands.Queue.Delete():
                if method.if_unused or method.if_empty:
                    raise Skip
                return client.ask("DELETE", f"/queues/{method.queue}")
            case commands.Queue.Purge():
                return client.ask("DELETE", f"/queues/{method.queue}/messages")
            case commands.Exchange.Declare():
                body = _declaration(method, "durable", "internal", "auto_delete")
                return client.ask(
                    "PUT", f"/exchanges/{method.exchange}", {**body, "type": method.exchange_type}
                )
            case commands.Exchange.Delete():
                if method.if_unused:
                    raise Skip
                return client.ask("DELETE", f"/exchanges/{method.exchange}")
            case commands.Queue.Bind():
                return client.ask("POST", "/bindings", _binding(method, "destination_queue", method.queue))
            case commands.Exchange.Bind():
                body = _binding(method, "destination_exchange", method.destination)
                return client.ask("POST", "/bindings", body)
            case commands.Queue.Unbind():
                return _unbind(client, method, "q", method.queue)
            case commands.Exchange.Unbind():
                return _unbind(client, method, "e", method.destination)
        raise AssertionError(method)


class _Declared:
    """The counts in the answer to a declaration."""

    def __init__(self, answer: Answer) -> None:
        self.message_count = int(answer.body["message_count"])
        self.consumer_count = int(answer.body["consumer_count"])


def _declaration(method: Any, *flags: str) -> dict[str, Any]:
    said = {flag: bool(getattr(method, flag)) for flag in flags}
    return {**said, "arguments": dict(method.arguments or {})}


def _binding(method: Any, kind: str, destination: str) -> dict[str, Any]:
    source = method.exchange if isinstance(method, commands.Queue.Bind) else method.source
    return {
        "source": source,
        kind: destination,
        "binding_key": method.routing_key,
        "arguments": dict(method.arguments or {}),
    }


def _unbind(client: Amqp10, method: Any, kind: str, destination: str) -> Answer:
    source = method.exchange if kind == "q" else method.source
    where = f"src={quote(source, safe='')}&dst{kind}={quote(destination, safe='')}"
    found = client.ask("GET", f"/bindings?{where}&key={quote(method.routing_key, safe='')}")
    if found.status != 200:
        return found
    for binding in found.body:
        if binding["arguments"] == dict(method.arguments or {}):
            return client.ask("DELETE", binding["location"])
    return Answer(204, None, None)


def filters_told(name: str) -> dict[Any, Any] | None:
    """The filters of a source: one of FILTERS, or none."""
    if not name:
        return None
    descriptor, value, _ = FILTERS[name]
    return {t.Symbol("wanted"): t.Described(t.Symbol(descriptor), value)}


def _queue_addressed(message: Message) -> str:
    """The queue of an address that makes it where it is not there; "": it is no such address."""
    is_one = not message.exchange and message.key.startswith("$queue/")
    return message.key.split("/")[1] if is_one else ""


def credit_of(link: Link) -> Callable[[], float]:
    """How much credit a link has left, each time it is asked."""
    return lambda: link.limit - link.fed


def _encoded(message: Message, to: str | None, delay_ms: int, user_id: str, identifier: str) -> bytes:
    """The message as it is sent."""
    priority, ttl = t.UByte(message.priority), None if message.ttl_ms is None else t.UInt(message.ttl_ms)
    parts = [p.encode(p.Header(message.durable, priority, ttl))]
    annotations: dict[Any, Any] = {}
    if message.cc:
        annotations[t.Symbol("x-cc")] = message.cc
    if delay_ms:
        annotations[t.Symbol("x-opt-delivery-delay")] = t.UInt(delay_ms)
    if annotations:
        parts.append(section(0x72, annotations))
    if to is not None or user_id:
        parts.append(p.encode(p.Properties(to=to, user_id=user_id.encode() or None)))
    application: dict[str, Any] = dict(message.headers)
    if identifier:
        application["x-deduplication-id"] = identifier
    if application:
        parts.append(section(0x74, application))
    parts.append(section(0x75, message.body.encode()))
    return b"".join(parts)
