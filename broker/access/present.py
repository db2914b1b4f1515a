"""The identities of open connections, and how those are ended when they may be in no more."""

from __future__ import annotations

from collections.abc import Callable

from broker.access.login import Identity, Login

REMOVED = "the user is no longer known"
NARROWED = "the user's permissions no longer cover what this connection does"
EXPIRED = "the login has expired"
CHANGED = "the user's permissions changed meanwhile"


class Present:
    """The identities of the connections of one broker."""

    __slots__ = ("_send_away",)

    def __init__(self) -> None:
        self._send_away: dict[Identity, Callable[[str], None]] = {}

    def __len__(self) -> int:
        return len(self._send_away)

    def enter(self, identity: Identity, send_away: Callable[[str], None]) -> None:
        """Note a connection that is let in; `send_away` ends it, for the reason it is given."""
        self._send_away[identity] = send_away

    def leave(self, identity: Identity) -> None:
        """Forget a connection that is gone; does nothing if it was not let in."""
        self._send_away.pop(identity, None)

    def review(self, now_of: Callable[[Identity], Login | None]) -> int:
        """End the connections of who is not known any more, or may do less than they did; the others go on
        with what `now_of` gives. Gives how many ended.
        """
        ended = 0
        for identity, send_away in list(self._send_away.items()):
            login = now_of(identity)
            if login is not None and not identity.is_narrowed_by(login):
                continue
            identity.revoke()
            send_away(REMOVED if login is None else NARROWED)
            ended += 1
        return ended

    def expire(self, now_ms: int) -> None:
        """End the connections whose login has ended."""
        for identity, send_away in list(self._send_away.items()):
            expires_at_ms = identity.login.expires_at_ms
            if expires_at_ms is not None and expires_at_ms <= now_ms:
                send_away(EXPIRED)
