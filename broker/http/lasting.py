"""Requests that last: they end once who asks may not ask that any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker.access.access import Access
from broker.access.credentials import LoginRefused
from broker.access.login import Identity, NotPermitted
from broker.access.present import NARROWED


@contextmanager
def lasting(
    access: Access, identity: Identity, end: Callable[[str], None], *, tags: frozenset[str] = frozenset()
) -> Iterator[None]:
    """Meanwhile a request counts among the connections of its user.

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
