"""The virtual hosts that a request of RabbitMQ's API leads into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.access.credentials import VhostRefused
from broker.access.login import Identity
from broker.access.rights import Action, Kind
from broker.admin.admin import Admin
from broker.http.problems import Problem
from broker.http.rabbitmq.asking import Asking
from broker.http.rates import RateMeter
from broker.http.site import Site
from broker.hub import Hub
from broker.vhost import VhostNotFound
from queue_manager.address import local_name
from queue_manager.api import QueueView
from queue_manager.errors import ExchangeNotFound, QueueNotFound

_NO_ENTRY: Final = "User not authorised to access virtual host"


class Place:
    """One virtual host: whom to ask there, and how fast its queues are."""

    __slots__ = ("meter", "site")

    def __init__(self, site: Site) -> None:
        self.site = site
        self.meter = RateMeter(site)

    @property
    def vhost(self) -> str:
        """Its name."""
        return self.site.hub.vhost.name

    @property
    def admin(self) -> Admin:
        """What is done there."""
        return self.site.admin

    def no_queue(self, error: QueueNotFound) -> Problem:
        """What is told of a queue that is not there."""
        return Problem(404, "not_found", f"no queue '{local_name(error.name or '')}' in vhost '{self.vhost}'")

    def no_exchange(self, error: ExchangeNotFound) -> Problem:
        """What is told of an exchange that is not there."""
        return Problem(404, "not_found", f"no exchange '{local_name(error.name)}' in vhost '{self.vhost}'")


class Places:
    """All virtual hosts, each made when it is first asked about."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._by_hub: dict[Hub, Place] = {}
        site.hub.on_vhost(self._changed)

    def _changed(self, hub: Hub, begins: bool) -> None:
        if not begins:
            self._by_hub.pop(hub, None)

    def of(self, asking: Asking) -> Place:
        """The one that the path names; raises Problem where there is none, or the user may not enter it."""
        return self.entered(asking)[0]

    def entered(self, asking: Asking) -> tuple[Place, Identity]:
        """As `of`, and who the user is there."""
        name = asking.part("vhost")
        try:
            place = self._place(name)
            return place, asking.login.enter(name)
        except VhostNotFound:
            raise Problem(404, "not_found", "Not Found") from None
        except VhostRefused:
            raise Problem(401, "not_authorised", _NO_ENTRY) from None

    def seen(self, asking: Asking) -> list[Place]:
        """The one that the path names, or all that the user may enter."""
        if asking.part("vhost"):
            return [self.of(asking)]
        names = self._site.hub.vhosts()
        return [self._place(name) for name in names if asking.login.may_enter(name)]

    def _place(self, name: str) -> Place:
        hub = self._site.hub.of_vhost(name)
        place = self._by_hub.get(hub)
        if place is None:
            place = self._by_hub[hub] = Place(self._site.of_vhost(name))
        return place


def seen_by(asking: Asking, place: Place, views: Sequence[QueueView]) -> Sequence[QueueView]:
    """Of the queues there those whose names the user may see."""
    sees = seeing(asking, place)
    return [view for view in views if sees(view.name)]


def seeing(asking: Asking, place: Place) -> Callable[[str], bool]:
    """Tells of the name of a queue there whether the user may see it: who has any right on the queue, or may
    look at everything.
    """
    if asking.login.is_monitoring:
        return lambda name: True
    identity = asking.login.enter(place.vhost)
    return lambda name: any(identity.may(action, Kind.QUEUE, name) for action in Action)
