"""Requests that last: they end once who asks may not ask that any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from broker.access.access import Access
from broker.access.credentials import LoginRefused
from broker.access.login import Identity, NotPermitted
from broker.access.present import NARROWED

T = TypeVar("T")


@contextmanager
def lasting(
    access: Access, identity: Identity, end: Callable[[str], None], *, tags: frozenset[str] = frozenset()
) -> Iterator[None]:
    """Count a request meanwhile among the connections of its user.

    `end` is called, with a reason, when the user is removed, the login expires, or what the request was
    allowed so far (one of `tags`, too, where it takes one) is allowed no longer. Raises NotPermitted where
    that has happened already, or the user has as many connections as they may.
    """
    own = identity.alone(tags)
    try:
        if own.is_narrowed_by(access.current(identity.login)):
            raise NotPermitted(NARROWED)
        access.present.enter(own, end)
    except LoginRefused as refused:
        raise NotPermitted(refused.told) from None
    try:
        yield
    finally:
        access.present.leave(own)


async def run_lasting(
    access: Access, identity: Identity, work: Coroutine[Any, Any, T], *, tags: frozenset[str]
) -> T:
    """Return what `work` comes to; see `lasting`. Where that ends it, it is cancelled, and NotPermitted
    raised.
    """
    task = asyncio.ensure_future(work)
    reasons: list[str] = []

    def end(reason: str) -> None:
        reasons.append(reason)
        task.cancel()

    try:
        with lasting(access, identity, end, tags=tags):
            await asyncio.wait((task,))
        if reasons and task.cancelled():
            raise NotPermitted(reasons[0])
        return task.result()
    finally:
        if not task.done():
            task.cancel()
