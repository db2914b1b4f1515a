"""What administrators do to groups, messages and settings over HTTP, and a fetch that waits for a message."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.whole.clients import ANSWER_TIMEOUT_S, BASIC, within
from tests.whole.http_operations import HttpOperations
from tests.whole.queues import BY_QUEUE, DONE, FAILED, HELD, READY, Consumer, Group, Item, Mismatch, Queue
from tests.whole.world import Skip

PLAIN_GROUPS = ("g", "h", "")


WAIT_MS = 300


class AdminOperations(HttpOperations):
    """`do_...` of administrators; the client is `H`."""

    # ---- groups

    def do_g_make(self, name: str, q: str, group: str, start: str = "earliest") -> None:
        """Make a group, at the oldest message kept or at the end; 409 where it is there."""
        queue = self.no_stream(q)
        there = group in queue.groups
        wanted: tuple[int, ...] = (409,) if there else (200, 201)
        if there and queue.groups[group].may_be_none():
            wanted = (200, 201, 409)
        answer = self.expect(wanted, "PUT", f"/api/v1/queues/{q}/groups/{group or '~'}", {"start": start})
        if there and "error" in answer:
            return
        made = queue.group(group, time.time())
        if start == "latest":
            self._pass_over(made)

    def _pass_over(self, group: Group) -> None:
        now = time.time()
        self.queues.advance(now)
        for item in group.items:
            if item.state == READY and (item.is_late(now) or self.queues.may_come_yet(item, now)):
                item.required = False  # it may have come due a moment later, or comes later
            elif item.state == READY:
                item.need_not_come()
                item.state = DONE

    def _idle_group(self, queue: Queue, i: int, *, named: bool = False) -> Group:
        """A group with nobody and nothing in flight."""
        found = [
            group
            for name, group in sorted(queue.groups.items(), key=lambda pair: pair[0] or "")
            if name is not None and "@" not in name and (name or not named) and self._is_idle(group)
        ]
        if not found:
            raise Skip
        return found[i % len(found)]

    @staticmethod
    def _is_idle(group: Group) -> bool:
        unsure = any(item.either is not None or item.loose for item in group.items)
        return not (group.consumers or unsure or any(item.state == HELD for item in group.items))

    def _any_queue(self, q: str, wanted: Callable[[Queue], bool]) -> str:
        """The queue `q`, or the next one that is as wanted, so that more is done than is passed over."""
        names = sorted(self.queues.queues)
        later = [name for name in names if name >= q] + [name for name in names if name < q]
        for name in later:
            queue = self.queues.queues[name]
            if not queue.exclusive and not queue.settings.stream and wanted(queue):
                return name
        raise Skip

    def _has_idle_group(self, queue: Queue, *, named: bool = False) -> bool:
        return any(
            name is not None and "@" not in name and (name or not named) and self._is_idle(group)
            for name, group in queue.groups.items()
        )

    def do_g_delete(self, name: str, q: str, i: int = 0) -> None:
        """Delete a group: what it had not done goes, or stays in the queue if it was the last."""
        q = self._any_queue(
            q, lambda queue: queue.settings.durable and self._has_idle_group(queue, named=True)
        )
        queue = self.queues.queues[q]
        group = self._idle_group(queue, i, named=True)
        self.expect((200, 204), "DELETE", f"/api/v1/queues/{q}/groups/{group.name}")
        del queue.groups[group.name]
        if len(queue.groups) > 1:
            self._others_remain(queue, group)
            return
        left = queue.groups[BY_QUEUE]
        for item in group.items:
            item.required = item.required and item.state == READY
            item.state, item.attempts, item.group = READY, (0, item.attempts[1]), left
            left.items.append(item)
        left.items.sort(key=lambda item: item.place)

    @staticmethod
    def _others_remain(queue: Queue, deleted: Group) -> None:
        """What only the deleted group wanted goes; or it stays for groups to come, where one that remains has
        yet to pass over it.
        """
        rest = [group for group in queue.groups.values() if group.name is not BY_QUEUE]
        is_passed = all(group.counts_what_it_wants() for group in rest)
        for item in deleted.items:
            is_wanted = any(group.wants(item.message) for group in rest)
            if is_passed or is_wanted or item.state not in (READY, DONE):
                item.state = "gone"
                continue
            item.need_not_come()
            item.state = READY
            item.attempts, item.group = (0, item.attempts[1]), queue.groups[BY_QUEUE]
            queue.groups[BY_QUEUE].items.append(item)
        queue.groups[BY_QUEUE].items.sort(key=lambda item: item.place)

    def do_g_reset(self, name: str, q: str, i: int = 0, to: str = "earliest") -> None:
        """Have a group begin again, or pass over all there is; what is done may have gone already."""
        q = self._any_queue(
            q, lambda queue: queue.settings.max_length is None and self._has_idle_group(queue)
        )
        queue = self.queues.queues[q]
        group = self._idle_group(queue, i)
        path = f"/api/v1/queues/{q}/groups/{group.name or '~'}/reset"
        self.expect(200, "POST", path, {"to": to, "force": True})
        if to == "latest":
            self._pass_over(group)
            return
        kept = [item for other in queue.groups.values() for item in other.items if item.sure()]
        places = [item.place for item in kept if item.state in (READY, HELD)]
        for item in group.items:
            if item.state in (DONE, FAILED):
                # what failed comes again if the earliest message, which somebody has yet to do, is no later
                is_later = any(place[0] == item.place[0] and place <= item.place for place in places)
                item.required = item.required and item.state == FAILED and is_later
                item.state, item.loose = READY, True
            item.attempts = (0, item.attempts[1])
            item.is_over = False  # what expired may be there again, and expire again

    # ---- messages

    def do_move(
        self, name: str, q: str, to: str, i: int = 0, limit: int | None = None, copy: bool = False
    ) -> None:
        """Move, or copy, what is ready for a group to the end of another queue."""
        q = self._any_queue(q, self._has_idle_group)
        to = self._any_queue(
            to, lambda queue: queue.name != q and queue.settings.max_length is None and not queue.no_publish
        )
        queue, target = self.queues.queues[q], self.queues.queues[to]
        group = self._idle_group(queue, i)
        waiting = group.ready()
        plain = not queue.is_due_soon() and all(
            item.sure() and item.expires is None and not item.not_before for item in waiting
        )
        if not plain:
            raise Skip
        chosen = waiting[:limit] if limit else waiting
        body = {"to": to, "group": group.name, "state": "ready", "limit": limit}
        answer = self.expect(200, "POST", f"/api/v1/queues/{q}/{'copy' if copy else 'move'}", body)
        if answer["count"] != len(chosen):
            raise Mismatch(f"{answer['count']} of {q} to {to}, not {len(chosen)}")
        now = time.time()
        for item in chosen:
            if not copy:
                self.queues.done(item, now)
            self.queues.append(target, item.message, now, deaths=item.deaths, loose=True, ttl=False)

    # ---- settings

    def do_h_limit(self, name: str, q: str, n: int) -> None:
        """Set the length of a queue; all else it was declared with stays as it is."""
        queue = self.no_stream(q)
        if queue.auto_created or self.policies.holds_any:
            raise Skip
        before = queue.base
        answer = self.expect(200, "PUT", f"/api/v1/queues/{q}", {"limits": {"max_depth": n}})
        told = set(answer["changed"])
        wanted = set() if before.max_length == n else {"limits.max_depth"}
        if told != wanted:
            raise Mismatch(f"PUT of a length to {q} changed {answer['changed']}")
        if queue.declared is None:
            queue.declared = before
        overflow = "reject-publish" if before.max_length is None else before.overflow
        queue.base = replace(before, max_length=n, overflow=overflow)
        if queue.settings.overflow != "drop-head":
            return
        now = time.time()
        for group in queue.groups.values():
            if group.waiting()[1] > n:  # in the background, a moment later
                self.queues.any_may_give_way(queue, group, now)

    # ---- waiting

    def do_mq_wait(self, name: str, q: str, op: str, client: str, args: dict[str, Any]) -> None:
        """Fetch a message by a request that waits, and meanwhile do something else, as publish."""
        queue = self.no_stream(q)
        consumers = queue.groups[""].consumers if "" in queue.groups else []
        if self.mqcore is None or consumers or queue.no_deliver:
            raise Skip
        if any(item.loose or not item.sure() for item in queue.for_a_get()):
            raise Skip
        queue.group("", time.time())
        waits = http.client.HTTPConnection("127.0.0.1", self.broker.ports["mqcore"], timeout=20)
        try:
            waits.request("GET", within(self.vhost, f"/{q}/messages?wait={WAIT_MS}ms"), headers=BASIC)
            over_at = time.monotonic() + WAIT_MS / 1000
            ready = self._ready_for_a_get(queue)
            if not ready:
                self._wait_for_group(q)
                self.dares = args.get("dare", True)
                queue.is_waited_for = True
                try:
                    getattr(self, f"do_{op}")(client, **{key: args[key] for key in args if key != "dare"})
                except Skip:
                    pass  # it waits in vain
                finally:
                    queue.is_waited_for = False
            in_time = time.monotonic() < over_at
            answer = waits.getresponse()
            body = answer.read().decode()
            message_id = answer.getheader("X-Message-Id") or ""
            self._waited(queue, answer.status, body, message_id, bool(ready) or in_time)
        finally:
            waits.close()

    def _wait_for_group(self, q: str) -> None:
        """Wait until the default group is there: so is the request that makes it."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while all(group["group_id"] for group in self.expect(200, "GET", f"/api/v1/queues/{q}/groups")):
            if time.monotonic() > deadline:
                raise Mismatch(f"a request that waits for a message of {q} makes no group")

    def _waited(self, queue: Queue, status: int, body: str, message_id: str, in_time: bool) -> None:
        if self.queues.queues.get(queue.name) is not queue:
            return
        now = time.time()
        group = queue.group("", now)
        if status == 204:
            due: list[Item] = [item for item in group.ready() if item.there_and_alive(now)]
            late = not queue.no_deliver and not group.consumers and due and not due[0].not_before
            if late and in_time:
                raise Mismatch(f"204 after a wait, although {due[0].message.body!r} is in {queue.name}")
            return
        if status != 200:
            raise Mismatch(f"a wait for {queue.name} answered {status} {body!r}")
        reader = Consumer("H", "(wait)", queue, group, "hold", lambda: 1)
        item = self.queues.delivered(reader, body, now, None)
        assert self.mqcore is not None
        status, answer, _ = self.mqcore.raw("DELETE", f"/{queue.name}/messages/{message_id}")
        if status != 204:
            raise Mismatch(f"DELETE of {message_id} of {queue.name} answered {status} {answer!r}")
        self.queues.done(item, time.time())
