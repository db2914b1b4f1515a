"""The pages for people, made on the server; a small script keeps them up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.routing import Route

from broker.http.browser_sessions import BrowserSessions
from broker.http.guard import LOGIN, LOGOUT
from broker.http.pages import account_pages, broker_pages, link_pages, queue_pages, topology_pages
from broker.http.pages.openid_pages import CALLBACK, OPENID, OpenIdEntrance
from broker.http.pages.visit import Frame
from broker.http.site import Site

STATIC: Final = Path(__file__).parent.parent / "static"
PAGE_OPEN_PATHS: Final = frozenset({LOGIN, OPENID, CALLBACK, "/static/style.css", "/static/sluice.js"})

_PAGES: Final = (
    ("/", "Overview", broker_pages.show_broker),
    ("/queues", "Queues", queue_pages.show_queues),
    ("/streams", "Streams", queue_pages.show_streams),
    ("/scheduled", "Scheduled", queue_pages.show_scheduled),
    ("/dead-letters", "Dead letters", queue_pages.show_dead_letters),
    ("/exchanges", "Exchanges", topology_pages.show_exchanges),
    ("/policies", "Policies", topology_pages.show_policies),
    ("/links", "Links", link_pages.show_links),
    ("/connections", "Connections", broker_pages.show_connections),
    ("/sessions", "MQTT", broker_pages.show_sessions),
    ("/topics", "Topics", broker_pages.show_topics),
    ("/retained", "Retained", broker_pages.show_retained),
    ("/epochs", "Epochs", broker_pages.show_epochs),
    ("/quotas", "Quotas", account_pages.show_quotas),
    ("/bans", "Bans", account_pages.show_bans),
    ("/vhosts", "Virtual hosts", account_pages.show_vhosts),
    ("/nodes", "Nodes", broker_pages.show_nodes),
)
_ONES: Final = (
    ("/queues/{queue}", queue_pages.show_queue),
    ("/exchanges/{exchange}", topology_pages.show_exchange),
    ("/vhost", account_pages.pick_vhost),
)
_FORMS: Final = (
    ("/queues", queue_pages.make_queue),
    ("/queues/{queue}/{what}", queue_pages.change_queue),
    ("/exchanges", topology_pages.make_exchange),
    ("/exchanges/{exchange}/{what}", topology_pages.change_exchange),
    ("/policies", topology_pages.make_policy),
    ("/policies/{policy}/delete", topology_pages.remove_policy),
    ("/links", link_pages.make_parameter),
    ("/links/{component}/{name}/delete", link_pages.remove_parameter),
    ("/connections/{connection}/close", broker_pages.close_connection),
    ("/nodes/{name}/{what}", broker_pages.tell_node),
    ("/users", account_pages.make_user),
    ("/users/{user}/delete", account_pages.drop_user),
    ("/bans", account_pages.make_ban),
    ("/bans/{kind}/{value}/delete", account_pages.end_ban),
    ("/quotas", account_pages.set_quota),
    ("/vhosts", account_pages.make_vhost),
    ("/vhosts/{vhost}/delete", account_pages.drop_vhost),
)


def page_routes(site: Site, sessions: BrowserSessions) -> list[Route]:
    """Return the pages for people, and what their forms do."""
    frame = Frame(site)
    titled = [(path, title) for path, title, _ in _PAGES if path != "/nodes" or site.node.cluster is not None]
    frame.titled = [*titled, ("/users", "Users")]
    looking = [*_ONES, *[(path, page) for path, _, page in _PAGES]]
    at_issuer = OpenIdEntrance(sessions, site.hub.clock)
    entrance = account_pages.Entrance(sessions, at_issuer)
    return [
        Route(LOGIN, frame.guarded(entrance.show, needs=""), methods=["GET"]),
        Route(LOGIN, frame.guarded(entrance.log_in, needs=""), methods=["POST"]),
        Route(OPENID, frame.guarded(at_issuer.begin, needs=""), methods=["GET"]),
        Route(CALLBACK, frame.guarded(at_issuer.come_back, needs=""), methods=["GET"]),
        Route(LOGOUT, frame.guarded(entrance.log_out, needs=""), methods=["POST"]),
        Route("/users", frame.guarded(account_pages.show_users, needs="administrator"), methods=["GET"]),
        *[Route(path, frame.guarded(page), methods=["GET"]) for path, page in looking],
        *[Route(path, frame.guarded(do, needs="administrator"), methods=["POST"]) for path, do in _FORMS],
    ]
