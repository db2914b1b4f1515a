"""The pages for people, made on the server; a small script keeps them up to date."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from broker.admin.admin_views import MessageView, QueueView, State
from broker.http.drawing import drawing_of
from broker.http.guard import check_operator, identity_of
from broker.http.problems import Problem, problem_of
from broker.http.site import Site
from broker.http.v1.bans import list_bans
from broker.http.v1.listings import list_epochs, list_retained, list_sessions, staging_page
from broker.http.v1.overview import show_overview
from broker.http.v1.users import list_users
from broker.http.values import plain, shown
from config import limits
from config.queue_settings import QueueSettings
from queue_manager.address import address_of
from queue_manager.api import STATES
from queue_manager.errors import QueueManagerError
from queue_manager.patterns import MATCH_ALL

TEMPLATES: Final = Path(__file__).parent / "templates"
STATIC: Final = Path(__file__).parent / "static"

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}

_TOTALS: Final = (
    ("queues", "Queues"),
    ("ready", "Ready"),
    ("in_flight", "In flight"),
    ("delayed", "Delayed"),
    ("scheduled", "Scheduled"),
    ("failed", "Failed"),
    ("consumers", "Consumers"),
    ("connections", "Connections"),
)
_CHARTS: Final = (
    ("Messages per second", "published_rate delivered_rate settled_rate", "published,delivered,settled"),
    ("Waiting messages", "ready in_flight failed", "ready,in flight,failed"),
    ("Memory in MiB", "memory", "resident"),
    ("Processor in %", "cpu", "of one core"),
)


class Pages:
    """Writes pages from templates, and does what their forms ask for."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._admin = site.admin
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "count": _count,
            "duration": _duration,
            "path": lambda text: quote(str(text), safe=""),
            "size": _size,
            "time": _time,
            "words": lambda name: str(name).replace("_", " "),
        }
        self._titled = (
            ("/", "Overview", self.overview),
            ("/queues", "Queues", self.queues),
            ("/streams", "Streams", self.streams),
            ("/scheduled", "Scheduled", self.scheduled),
            ("/dead-letters", "Dead letters", self.dead_letters),
            ("/exchanges", "Exchanges", self.exchanges),
            ("/connections", "Connections", self.connections),
            ("/sessions", "MQTT", self.sessions),
            ("/topics", "Topics", self.topics),
            ("/retained", "Retained", self.retained),
            ("/epochs", "Epochs", self.epochs),
            ("/quotas", "Quotas", self.quotas),
            ("/bans", "Bans", self.bans),
        )

    def routes(self) -> list[Route]:
        """Return the pages for people, and what their forms do."""
        looking = [("/queues/{queue}", self.queue), *[(path, page) for path, _, page in self._titled]]
        changing = (
            ("GET", "/users", self.users),
            ("POST", "/queues", self.create_queue),
            ("POST", "/queues/{queue}/{what}", self.change_queue),
            ("POST", "/connections/{connection}/close", self.close_connection),
        )
        return [
            *[Route(path, self._guarded(page), methods=["GET"]) for path, page in looking],
            *[Route(path, self._guarded(page, is_looking=False), methods=[m]) for m, path, page in changing],
        ]

    def _guarded(
        self, make: Callable[[Request], Awaitable[Response]], *, is_looking: bool = True
    ) -> Callable[[Request], Awaitable[Response]]:
        """Call `make` for a user that may; else make a page that says what went wrong."""

        async def serve(request: Request) -> Response:
            try:
                check_operator(identity_of(request.scope), is_looking=is_looking)
                return await make(request)
            except Exception as error:
                problem = problem_of(error)
                answer = self._page(request, "problem.html", problem.status, problem=problem)
                answer.headers.update(problem.headers or {})
                return answer

        return serve

    def _page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        may_change = _may_change(request)
        text = self._environment.get_template(template).render(
            node=self._site.node.view(),
            pages=[*[each[:2] for each in self._titled], *([("/users", "Users")] if may_change else [])],
            here=request.scope["path"],
            notice=request.query_params.get("done", "")[:200],
            may_change=may_change,
            **values,
        )
        return HTMLResponse(text, status, headers=HEADERS)

    # looking

    async def overview(self, request: Request) -> Response:
        """Show numbers and charts of the whole broker."""
        overview = asdict(await show_overview(self._site))
        ports = {listener.name: listener.port for listener in self._site.node.listeners()}
        return self._page(
            request,
            "overview.html",
            overview=overview,
            queues=(await self._site.queues())[: limits.HTTP_PAGE_ITEMS_DEFAULT],
            totals=_TOTALS,
            charts=_CHARTS,
            ports={"mqtt": 1883, **ports},
            host=request.headers.get("host", "localhost"),
        )

    async def queues(self, request: Request) -> Response:
        """Return all queues, a page at a time."""
        name = request.query_params.get("name", "")
        after = request.query_params.get("after", "")
        found = await self._admin.queue_page(after=after, name=name)
        return self._listing(
            request, "Queues", list(found.items), "No queues.", name=name, total=found.total, next=found.next
        )

    async def streams(self, request: Request) -> Response:
        """Show queues that keep what was read."""
        found = [view for view in await self._site.queues() if view.type == "stream"]
        return self._listing(request, "Streams", found, "No streams: make a queue of the type stream.")

    async def scheduled(self, request: Request) -> Response:
        """Show queues with messages that are due later."""
        found = [view for view in await self._site.queues() if view.scheduled]
        return self._listing(
            request, "Scheduled messages", found, "Nothing is scheduled.", suffix="?state=scheduled"
        )

    async def dead_letters(self, request: Request) -> Response:
        """Show queues that take what others gave up, and those with failed messages."""
        views = await self._site.queues()
        targets = {view.policy.dead_letter for view in views}
        found = [view for view in views if view.name in targets or view.failed]
        nothing = "No dead letters: no queue has any, nor failed messages."
        return self._listing(request, "Dead letters and failed messages", found, nothing)

    def _listing(
        self,
        request: Request,
        title: str,
        items: list[QueueView],
        nothing: str,
        *,
        name: str | None = None,
        total: int = 0,
        next: str | None = None,
        suffix: str = "",
    ) -> Response:
        return self._page(
            request,
            "queues.html",
            title=title,
            items=items[: limits.HTTP_PAGE_ITEMS_MAX],
            nothing=nothing,
            searchable=name is not None,
            name=name or "",
            total=total,
            next=next,
            suffix=suffix,
        )

    async def queue(self, request: Request) -> Response:
        """Show one queue: its groups, and its messages by state."""
        name = _part(request, "queue")
        view = await self._admin.queue(name)
        query = request.query_params
        state: State = next((each for each in STATES if each == query.get("state")), "ready")
        group = query.get("group")
        problem, shown_messages, following = "", [], None
        try:
            page = await self._admin.browse(name, group, state, after=query.get("after"), limit=50)
            shown_messages, following = [_shown_message(each) for each in page.messages], page.next
        except QueueManagerError as error:
            problem = error.reason
        counts = [
            ("Ready", view.ready),
            ("In flight", view.in_flight),
            ("Delayed", view.delayed),
            ("Scheduled", view.scheduled),
            ("Failed", view.failed),
            ("Wanted by no group", view.unwanted),
            ("Consumers", view.consumers),
            ("Published", view.published),
            ("Redelivered", view.redelivered),
        ]
        return self._page(
            request,
            "queue.html",
            queue=view,
            counts=counts,
            groups=await self._admin.groups(name),
            epochs=await list_epochs(self._site, name, after=query.get("producer", "")),
            states=STATES,
            state=state,
            group=group,
            problem=problem,
            messages=shown_messages,
            next=following,
        )

    async def exchanges(self, request: Request) -> Response:
        """Show exchanges and what they are bound to, as a drawing and as tables."""
        bindings = await self._admin.bindings()
        return self._page(
            request,
            "exchanges.html",
            exchanges=await self._admin.exchanges(),
            bindings=bindings[: limits.HTTP_PAGE_ITEMS_MAX],
            drawing=drawing_of(bindings),
        )

    async def connections(self, request: Request) -> Response:
        """Show the clients that are connected."""
        return await self._connections(request, "connections.html", "Connections", "Nobody is connected.", "")

    async def sessions(self, request: Request) -> Response:
        """Show MQTT clients with their subscriptions, and sessions that outlive their connection."""
        kept = await list_sessions(self._site, after=request.query_params.get("session", ""))
        nothing = "No MQTT client is connected."
        return await self._connections(
            request, "sessions.html", "MQTT clients", nothing, "MQTT", sessions=kept
        )

    async def _connections(
        self, request: Request, template: str, title: str, nothing: str, protocol: str, **values: Any
    ) -> Response:
        views = await self._site.node.connections()
        views = [view for view in views if view.description.protocol.startswith(protocol)]
        after = request.query_params.get("after", "0")
        behind = [view for view in views if view.id > (int(after) if after.isdecimal() else 0)]
        items = behind[: limits.HTTP_PAGE_ITEMS_DEFAULT]
        following = items[-1].id if len(behind) > len(items) else None
        return self._page(
            request,
            template,
            title=title,
            items=items,
            nothing=nothing,
            total=len(views),
            next=following,
            **values,
        )

    async def topics(self, request: Request) -> Response:
        """Show topics to be followed live."""
        return self._page(request, "topics.html", filter=request.query_params.get("filter", "#")[:1000])

    async def retained(self, request: Request) -> Response:
        """Show retained messages by topic."""
        query = request.query_params
        topic_filter = query.get("filter") or MATCH_ALL
        found, problem = None, ""
        try:
            found = await list_retained(self._site, after=query.get("after", ""), filter=topic_filter)
        except QueueManagerError as error:
            problem = error.reason
        return self._page(request, "retained.html", filter=topic_filter, retained=found, problem=problem)

    async def epochs(self, request: Request) -> Response:
        """Show the producers that stage epochs, in all queues."""
        query = request.query_params
        after = (query.get("queue", ""), query.get("producer", ""))
        found = await staging_page(self._site, after=after, limit=limits.HTTP_PAGE_ITEMS_DEFAULT)
        return self._page(request, "epochs.html", epochs=found)

    async def quotas(self, request: Request) -> Response:
        """Show what virtual hosts and users have, and may have."""
        return self._page(request, "quotas.html", quotas=self._site.client.quotas.views())

    async def bans(self, request: Request) -> Response:
        """Show who is kept out."""
        return self._page(request, "bans.html", bans=await list_bans(self._site))

    async def users(self, request: Request) -> Response:
        """Show accounts with their permissions."""
        found = await list_users(self._site, after=request.query_params.get("after", ""))
        return self._page(request, "users.html", users=found)

    # doing

    async def create_queue(self, request: Request) -> Response:
        """Make a queue."""
        form = await _form(request)
        name = _field(form, "queue")
        await self._admin.declare(
            QueueSettings.model_validate({"name": name, "type": _field(form, "type", "classic")})
        )
        return _back(f"/queues/{quote(name, safe='')}", "The queue is there.")

    async def change_queue(self, request: Request) -> Response:
        """Do what a form on the page of a queue asks for."""
        name, what = _part(request, "queue"), _part(request, "what")
        form = await _form(request)
        place = f"/queues/{quote(name, safe='')}"
        if what == "publish":
            rest, kind = _field(form, "rest", ""), _field(form, "content_type", "")
            properties: dict[str, Any] = {"content_type": kind} if kind else {}
            await self._admin.queue(name)
            await self._admin.publish(
                f"{address_of(name)}/{rest}" if rest else name,
                _field(form, "body", "").encode(),
                **properties,
            )
            return _back(place, "Published.")
        if what in ("pause", "resume"):
            return _back(place, await self._set_pause(name, _field(form, "what"), paused=what == "pause"))
        if what == "purge":
            return _back(place, f"{await self._admin.purge(name)} messages dropped.")
        if what == "delete":
            await self._admin.delete(name)
            return _back("/queues", f"Queue {name} is deleted.")
        group = _field(form, "group", "")
        if what == "redrive":
            return _back(place, f"{await self._admin.redrive(name, group)} messages are tried again.")
        if what == "redrive-dead-letters":
            return _back(place, f"{await self._admin.redrive_dead_letters(name)} messages sent back.")
        if what == "move":
            state = "failed" if _field(form, "state", "ready") == "failed" else "ready"
            wanted = _field(form, "limit", "1000")
            count = await self._admin.move(
                name,
                _field(form, "to"),
                group=group or None,
                state="failed" if state == "failed" else "ready",
                limit=int(wanted) if wanted.isdecimal() else 0,
            )
            return _back(place, f"{count} messages moved.")
        raise Problem(404, "not_found", "no such form")

    async def _set_pause(self, name: str, what: str, *, paused: bool) -> str:
        change = self._admin.pause if paused else self._admin.resume
        await change(name, publish=what == "publish", deliver=what == "deliver")
        return f"{'Paused' if paused else 'Resumed'}: {'publishers' if what == 'publish' else 'consumers'}."

    async def close_connection(self, request: Request) -> Response:
        """Send a client away."""
        number = _part(request, "connection")
        closed = number.isdecimal() and await self._site.node.close_connection(
            int(number), "closed by an operator"
        )
        if not closed:
            raise Problem(404, "not_found", f"no connection {number}")
        return _back("/connections", f"Connection {number} is closed.")


def _may_change(request: Request) -> bool:
    try:
        return identity_of(request.scope).login.is_administrator
    except Problem:
        return False


def _part(request: Request, name: str) -> str:
    return unquote(request.path_params[name])


async def _form(request: Request) -> FormData:
    return await request.form(
        max_fields=limits.HTTP_FORM_FIELDS_MAX, max_part_size=limits.HTTP_BODY_BYTES_MAX
    )


def _field(form: FormData, name: str, default: str | None = None) -> str:
    value = form.get(name, default)
    if not isinstance(value, str):
        raise Problem(400, "invalid_argument", f"{name}: missing")
    return value.replace("\r\n", "\n")


def _back(path: str, done: str) -> Response:
    return RedirectResponse(f"{path}?done={quote(done)}", 303, headers=HEADERS)


def _shown_message(view: MessageView) -> dict[str, Any]:
    body = (view.body or b"")[: limits.PREVIEW_BYTES]
    text, encoding = shown(body)
    if encoding != "text":
        text = body.hex(" ")
    elif view.properties.get("content_type") == "application/json":
        try:
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    if view.body is not None and len(view.body) > len(body):
        text += f"\n... {len(view.body)} bytes"
    details = {**plain(view.properties), **plain(view.headers)}
    return {
        "offset": view.offset,
        "topic": view.topic,
        "attempts": view.attempts,
        "consumer": view.consumer,
        "received_at_ms": view.received_at_ms,
        "time_ms": view.time_ms,
        "shown": text,
        "details": json.dumps(details, indent=2, ensure_ascii=False) if details else "",
    }


def _count(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")


def _size(value: int) -> str:
    size = float(value)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _duration(value_ms: int) -> str:
    seconds = value_ms // 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds} s"


def _time(value_ms: int) -> str:
    return datetime.fromtimestamp(value_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
