"""The logs of lasting sessions' filters in the subscription tree."""

from __future__ import annotations

from typing import Protocol, cast

from broker.engine.session_traffic import Log, Matched, Session
from broker.mqtt.topology.subscription import Subscription
from protocols.mqtt.events import PublishRun


class PlainLink(Protocol):
    """The connection of a session."""

    def pass_on(self, run: PublishRun, matched: Matched) -> None:
        """Send publishes of QoS 0, which are kept for nobody, as the subscriptions together want them."""


class LoggedFilter:
    """A filter that sessions are subscribed to with QoS 1 or 2: one entry in the tree for all of them."""

    __slots__ = ("log", "subscription")

    protocol_version = 0
    takes_rewritten = False
    has_room = True

    def __init__(self, log: Log) -> None:
        self.log = log
        self.subscription = Subscription(self, log.filter, 2, retain_as_published=True)

    def may_read(self, topic: str) -> bool:
        """See `Subscriber`: each session is asked when it is sent something."""
        return True

    def pass_on(self, run: PublishRun) -> None:
        """See `Subscriber`: nothing goes to a log as it came by wire."""

    def forward(self, run: PublishRun, subscription: Subscription) -> None:
        """See `Subscriber`: publishes of QoS 0 go to sessions that are connected."""
        self.forward_from(None, run)

    def forward_from(self, publisher: Session | None, run: PublishRun) -> bool:
        """Forward as `forward`, but for the publisher's own subscriptions that want no local ones; returns
        whether a session is connected. Of a session's filters that match, the first sends for all of them.
        """
        is_heard = False
        for subscription in list(self.log.live):
            session = subscription.session
            matched = session.matched(run.shape.topics, is_own=session is publisher)
            is_heard = is_heard or bool(matched.logged)
            if matched.logged and matched.logged[0] is subscription:
                cast(PlainLink, session.link).pass_on(run, matched)
        return is_heard
