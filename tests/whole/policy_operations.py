"""Policies and operators' policies, which change what holds for queues while these have messages."""

from __future__ import annotations

import random
import time
from typing import Any
from urllib.parse import quote

from tests.whole.admin_operations import AdminOperations
from tests.whole.names import QUEUES, some
from tests.whole.policies import OPERATORS_KEYS
from tests.whole.queues import LATE_S, Queue, expiry
from tests.whole.settings import Settings
from tests.whole.world import Operation, Skip

POLICY_SHARE = 0.12
VALUE_SHARE = 0.08
PRIORITIES = {"all": 0}  # the policy of a queue's name holds before that of all


class PolicyOperations(AdminOperations):
    """`do_...` of policies; the client is `H`."""

    def do_policy(self, name: str, q: str, definition: dict[str, Any], operator: bool = False) -> None:
        """Set the policy named after a queue, or `all`."""
        before = self._steady()
        body = {
            "pattern": "^q" if q == "all" else f"^{q}$",  # not for where dead letters go
            "definition": definition,
            "priority": PRIORITIES.get(q, 1),
            "apply-to": "queues",
        }
        known = self.policies.operators if operator else self.policies.plain
        self.expect(204 if q in known else 201, "PUT", self._path(q, operator), body)
        known[q] = definition
        self._follow(before)

    def do_unpolicy(self, name: str, q: str, operator: bool = False) -> None:
        known = self.policies.operators if operator else self.policies.plain
        if q not in known:
            raise Skip
        before = self._steady()
        self.expect(204, "DELETE", self._path(q, operator))
        del known[q]
        self._follow(before)

    def delete_policies(self) -> None:
        """Delete all there are, after a mismatch also what is not known of."""
        for kind in ("policies", "operator-policies"):
            for q in (*QUEUES, "all"):
                self.http.call("DELETE", self._path(q, kind != "policies"))
        self.policies.plain.clear()
        self.policies.operators.clear()

    def _path(self, q: str, operator: bool) -> str:
        kind = "operator-policies" if operator else "policies"
        return f"/api/{kind}/{quote(self.vhost, safe='')}/{q}"

    def _steady(self) -> dict[Queue, Settings]:
        """What holds now for each queue; nothing expires while that changes."""
        self.queues.advance(time.time())
        soon = time.time() + 2 * LATE_S
        for queue in self.queues:
            if queue.declared is not None or queue.is_due_soon():
                raise Skip
            for group in queue.groups.values():
                if any(item.expires is not None and item.expires < soon for item in group.ready()):
                    raise Skip
        return {queue: queue.settings for queue in self.queues}

    def _follow(self, before: dict[Queue, Settings]) -> None:
        """Have the queues be as the policies want it now."""
        now = time.time()
        for queue, was in before.items():
            settings = queue.settings
            if settings.ttl_ms != was.ttl_ms:
                for group in queue.groups.values():
                    for item in group.items:
                        expires = expiry(settings, item.entered, item.own_expires)
                        item.expires = None if expires is None else max(expires, now)
            limit = settings.max_length
            if limit is None or settings.overflow != "drop-head":
                continue
            for group in queue.groups.values():
                if group.waiting()[1] > limit:  # in the background, a moment later
                    self.queues.any_may_give_way(queue, group, now)


def with_policies(r: random.Random, operations: list[Operation]) -> list[Operation]:
    """The operations, with policies that come and go in between."""
    mixed: list[Operation] = []
    for operation in operations:
        if mixed and some(r, 0.12):
            mixed.append(_change(r))
        mixed.append(operation)
    return mixed


def with_last_values(r: random.Random, operations: list[Operation]) -> list[Operation]:
    """The operations, with queues that keep the newest of each value, and more of what has a value."""
    for name, _, arguments in operations:
        of = arguments["args"] if name == "beside" else arguments
        what = arguments["op"] if name == "beside" else name
        plain = not of.keys() & {"max_priority", "max_length", "stream"}
        if what == "declare" and plain and some(r, 0.6):
            of["last_value"] = True
        elif what in ("pub", "l_pub") and some(r, 0.7):
            of["headers"] = {"h": r.choice((1, 2))}
    return operations


def _change(r: random.Random) -> Operation:
    q, operator = r.choice((*QUEUES, "all")), some(r, 0.3)
    if some(r, 0.3):
        return "unpolicy", "H", {"q": q, "operator": operator}
    wanted: dict[str, Any] = {}
    if some(r, 0.5):
        wanted |= {"max-length": r.randint(1, 4), "overflow": r.choice(("drop-head", "reject-publish"))}
    if some(r, 0.4):
        wanted["message-ttl"] = r.choice((40, 80, 60_000))
    if some(r, 0.3):
        wanted["delivery-limit"] = r.randint(0, 2)
    if some(r, 0.4) and not operator:
        wanted |= {"dead-letter-exchange": "", "dead-letter-routing-key": "d1"}
    if not wanted:
        wanted["max-length"], wanted["overflow"] = 2, "drop-head"
    assert not operator or set(wanted) <= set(OPERATORS_KEYS)
    return "policy", "H", {"q": q, "definition": wanted, "operator": operator}
