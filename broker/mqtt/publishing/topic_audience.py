"""The subscribers of a topic: who hears publishes of one shape, whatever they were published by."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Final

import structlog

from broker.engine.client.retained import RetainedClient
from broker.engine.client.sessions import SessionClient
from broker.engine.elsewhere import Elsewhere, FarPlan
from broker.engine.session_traffic import Log, Session
from broker.mqtt.sessions.lasting_sessions import LoggedFilter
from broker.mqtt.topology.pubsub import PubSub, Route
from broker.mqtt.topology.subscription import HERE, ShareGroup, Subscriber, Subscription, one_for_each_client
from broker.properties.templates import of_mqtt
from broker.vhosts.hub import Hub
from protocols.mqtt.events import PublishRun, PublishShape
from queue_manager.audience import HEARD, NOTHING_AHEAD, STORED, UNHEARD, SessionsAhead
from queue_manager.validity import Version
from storage.envelope import EnvelopeTemplate

_log: Final = structlog.get_logger("sluicemq.mqtt")

_NEVER_FOUND = Version()
_NEVER_FOUND.expire()


@dataclass(eq=False, repr=False, slots=True)
class Audience:
    """As `queue_manager.audience.Audience`, of publishes of one shape.

    `direct` are the subscribers who get them byte for byte, `_others` the subscriptions that need them
    rewritten, `_groups` those that choose among their members, `_logged` the filters that keep them for
    lasting sessions; all of that holds for one version of the subscriptions. `is_retained`: the last message
    was, where the shape says so.

    `subscriber` and `session` are those of the publisher, for subscriptions that are not for its own
    publishes; `protocol_version` that of the publishes as they came by wire, 0 if they did not; `user` for
    whose quotas it counts what is retained.

    `_far` are the plans for what goes to other workers. `sent_by`: publishes come from another worker, which
    sees to all that is not here.
    """

    hub: InitVar[Hub]
    _pubsub: PubSub
    _shape: PublishShape
    _: KW_ONLY
    subscriber: Subscriber | None = None
    session: Session | None = None
    protocol_version: int = 0
    user: str | None = None
    sent_by: FarPlan | None = None
    _sessions: SessionClient = field(init=False)
    _retained: RetainedClient = field(init=False)
    _template: EnvelopeTemplate | None = field(default=None, init=False)
    _run: PublishRun | None = field(default=None, init=False)
    _version: Version = field(default=_NEVER_FOUND, init=False)
    direct: list[Subscriber] = field(default_factory=list, init=False)
    _others: list[Subscription] = field(default_factory=list, init=False)
    _groups: tuple[ShareGroup, ...] = field(default=(), init=False)
    _logged: tuple[LoggedFilter, ...] = field(default=(), init=False)
    _far: tuple[FarPlan, ...] = field(default=(), init=False)
    _far_plans: dict[tuple[object, ...], FarPlan] | None = field(default=None, init=False)
    _retains_here: bool = field(default=True, init=False)
    is_retained: bool = field(default=False, init=False)

    def __post_init__(self, hub: Hub) -> None:
        self._sessions = hub.client.sessions
        self._retained = hub.client.retained

    @property
    def version(self) -> Version:
        """The version of the subscriptions that it holds for; it is found anew if that is not current."""
        if not self._version.is_current:
            self._find()
        return self._version

    @property
    def is_direct(self) -> bool:
        """Whether all that is to be done is to pass publishes on to `direct`, and there are some."""
        more = self._shape.retain or self._others or self._groups or self._logged or self._far
        return bool(self.direct) and not more

    def came(self, run: PublishRun) -> None:
        """Take note of the run that is published next, as it came by wire."""
        self._run = run
        if self._pubsub.elsewhere is not None:
            self._pubsub.elsewhere.begin_publish()

    def is_there(self) -> bool:
        if not self._version.is_current:
            self._find()
        return bool(self.direct or self._others or self._has_members() or self._logged or self._far)

    def has_room(self, count: int, body_bytes: int, ahead: SessionsAhead = NOTHING_AHEAD) -> bool:
        logs = self._logs()
        return not logs or self._sessions.has_room(logs, count, body_bytes, ahead)

    def count_ahead(self, count: int, body_bytes: int, ahead: dict[Hashable, tuple[int, int]]) -> None:
        if logs := self._logs():
            self._sessions.count_ahead(logs, count, body_bytes, ahead)

    def _logs(self) -> Sequence[Log]:
        """Return the logs of lasting sessions that keep what is published."""
        if not self._version.is_current:
            self._find()
        return [logged.log for logged in self._logged] if self._shape.qos else ()

    def hear(self, bodies: list[bytes]) -> int:
        if not self._version.is_current:
            self._find()
        shape, run = self._shape, self._run
        self._run = None
        if run is None or run.count != len(bodies):  # of some only the first is taken: the others repeat it
            run = PublishRun(shape, len(bodies), [], bodies)
        heard = HEARD if self.direct or self._others or self._has_members() else UNHEARD
        if self._logged:
            heard = max(heard, self._keep(run))
        if self._far:
            heard = max(heard, self._send_far(run))
        if shape.retain:
            heard = STORED
            self.is_retained = not self._retains_here or self._retained.keep(
                self._kept_as(), shape.qos, run.payloads[-1], self.user
            )
            if not self.is_retained and self.sent_by is not None:  # its publisher is not told
                _log.warning("mqtt.retain_refused", topic=shape.topic, reason=self._retained.refusal)
        for subscriber in self.direct:
            subscriber.pass_on(run)
        for subscription in self._others:
            subscription.subscriber.forward(run, subscription)
        if self._groups and self._pubsub.elsewhere is not None:
            heard = max(heard, self._share_out(run))
        elif self._groups:
            for single in singles(run):
                for group in self._groups:
                    group.publish(single)
        return heard

    def _keep(self, run: PublishRun) -> int:
        """Give publishes to lasting sessions: of QoS 0 those hear them that are connected."""
        shape = self._shape
        if not shape.qos:
            heard = [logged.forward_from(self.session, run) for logged in self._logged]
            return HEARD if any(heard) else UNHEARD
        logs = [logged.log for logged in self._logged]
        self._sessions.publish(logs, self._kept_as(), shape.qos, shape.retain, self.session, run.payloads)
        return STORED

    def _send_far(self, run: PublishRun) -> int:
        """Send publishes to other workers."""
        heard = HEARD
        for plan in self._far:
            self._send(plan, run)
            if plan.is_certain:
                heard = STORED
        return heard

    def _share_out(self, run: PublishRun) -> int:
        """Give each publish to one of the workers that have members of a group, and there to one of those."""
        shape, heard = self._shape, UNHEARD
        for single in singles(run):
            for group in self._groups:
                worker = group.pick_worker() if group.far and self.sent_by is None else HERE
                if worker != HERE:
                    plan = self._far_plan(worker, is_kept=group.far[worker][1], group=group)
                    self._send(plan, single)
                    heard = max(heard, STORED if plan.is_certain else HEARD)
                elif group.log is not None and shape.qos:
                    logs, template = [group.log], self._kept_as()
                    publisher, bodies = self.session, single.payloads
                    self._sessions.publish(logs, template, shape.qos, shape.retain, publisher, bodies)
                    heard = STORED
                else:
                    group.publish(single)
        return heard

    def _send(self, plan: FarPlan, run: PublishRun) -> None:
        elsewhere = self._pubsub.elsewhere
        assert elsewhere is not None
        elsewhere.publish(plan, run.payloads)

    def _has_members(self) -> bool:
        """Whether a group has a member that is connected: one that is kept may have none."""
        return any(not group.is_unused for group in self._groups)

    def _kept_as(self) -> EnvelopeTemplate:
        """Return what messages have in common where they are kept."""
        if self._template is None:
            self._template = of_mqtt(self._shape.topic, self._shape.properties)
        return self._template

    def _find(self) -> None:
        """Find the subscribers as they are now."""
        pubsub = self._pubsub
        shape, version = self._shape, self.protocol_version
        self._version = pubsub.version
        routes = [pubsub.route(topic) for topic in shape.topics]
        found: Iterable[Subscription] = routes[0].subscriptions
        groups: Iterable[ShareGroup] = routes[0].groups
        if len(routes) > 1:
            found = dict.fromkeys(each for route in routes for each in route.subscriptions)
            groups = dict.fromkeys(each for route in routes for each in route.groups)
        plain: list[Subscription] = []
        logged: list[LoggedFilter] = []
        for subscription in found:
            if isinstance(subscription.subscriber, LoggedFilter):
                logged.append(subscription.subscriber)
            else:
                plain.append(subscription)
        self._logged = tuple(logged)
        wanted = one_for_each_client(plain, self.subscriber)
        self.direct = [one.subscriber for one in wanted if one.takes_as_is(shape, version)]
        self._others = [one for one in wanted if not one.takes_as_is(shape, version)]
        # those that are kept have it from the log of their filter
        keeps = shape.qos > 0 and pubsub.elsewhere is None
        self._groups = tuple(group for group in groups if not (keeps and group.is_kept))
        if self.sent_by is not None:
            self._find_sent(self.sent_by)
        elif pubsub.elsewhere is not None:
            self._find_far(pubsub.elsewhere, routes)

    def _find_sent(self, plan: FarPlan) -> None:
        """Find who hears what another worker sent: everybody but the groups, or a member of one group."""
        self._retains_here = plan.is_retained
        if not plan.share:
            self._groups = ()
            return
        self.direct, self._others, self._logged = [], [], ()
        self._groups = tuple(
            g for g in self._groups if (g.share, g.filter) == (plan.share, plan.share_filter)
        )

    def _find_far(self, elsewhere: Elsewhere, routes: Sequence[Route]) -> None:
        """Find the other workers that have subscribers, or are to retain the message."""
        shape = self._shape
        workers: dict[int, bool] = {}
        for route in routes:
            for worker, is_kept in route.far.items():
                workers[worker] = workers.get(worker, False) or is_kept
        keeper = elsewhere.keeper_of(self._pubsub.vhost, shape.topic) if shape.retain else elsewhere.number
        self._retains_here = keeper == elsewhere.number
        if not self._retains_here:
            workers[keeper] = True
        self._far = tuple(
            self._far_plan(worker, is_retained=not self._retains_here and worker == keeper, is_kept=is_kept)
            for worker, is_kept in workers.items()
        )

    def _far_plan(
        self,
        worker: int,
        *,
        is_retained: bool = False,
        is_kept: bool = False,
        group: ShareGroup | None = None,
    ) -> FarPlan:
        """Return the plan for another worker, the same as before if nothing else is asked for."""
        shape, plans = self._shape, self._far_plans
        if plans is None:
            plans = self._far_plans = {}
        share, share_filter = ("", "") if group is None else (group.share, group.filter)
        plan = plans.get((worker, is_retained, share, share_filter))
        if plan is None:
            plan = plans[worker, is_retained, share, share_filter] = FarPlan(
                worker,
                self._pubsub.vhost,
                shape.first_byte,
                shape.topic,
                shape.properties,
                shape.topics,
                user=self.user,
                is_retained=is_retained,
                share=share,
                share_filter=share_filter,
            )
        plan.is_certain = is_kept and (shape.qos > 0)
        return plan


def singles(run: PublishRun) -> list[PublishRun]:
    """Yield the publishes of a run, each as a run of its own."""
    if run.count == 1:
        return [run]
    ids = run.packet_ids or [0] * run.count
    return [
        PublishRun(run.shape, 1, [packet_id] if run.packet_ids else [], [payload])
        for packet_id, payload in zip(ids, run.payloads, strict=True)
    ]
