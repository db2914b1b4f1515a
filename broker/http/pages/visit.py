"""A request of a page for people: what it asks for, and the page that answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from broker.http.browser_sessions import COOKIE
from broker.http.guard import asks_for_page, check_operator, identity_of, to_login
from broker.http.problems import Problem, problem_of
from broker.http.site import Site
from broker.vhosts.vhost import VhostNotFound
from config import limits

TEMPLATES: Final = Path(__file__).parent.parent / "templates"

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
VHOST_COOKIE: Final = "sluicemq_vhost"

_NOTICES: Final = {
    "made": "It is there.",
    "changed": "Changed.",
    "deleted": "Deleted.",
    "published": "Published.",
    "unrouted": "No queue or subscriber wanted it.",
    "paused": "Paused.",
    "resumed": "Resumed.",
    "closed": "The connection is closed.",
    "dropped": "{count} messages dropped.",
    "redriven": "{count} messages are tried again.",
    "sent-back": "{count} messages sent back.",
    "moved": "{count} messages moved.",
}
"""What a form has done, by the word in `?done=`: no text of a link is ever shown."""


class Frame:
    """What all pages have in common: the templates, and the list of the pages."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.titled: list[tuple[str, str]] = []
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

    def guarded(
        self, make: Callable[[Visit], Awaitable[Response]], *, needs: str = "monitoring"
    ) -> Callable[[Request], Awaitable[Response]]:
        """Call `make` for a user with the tag it `needs` ("": for anybody); else make a page that says what
        went wrong.
        """

        async def serve(request: Request) -> Response:
            visit = Visit(self, request, self._site)
            try:
                if needs:
                    check_operator(identity_of(request.scope), is_looking=needs == "monitoring")
                visit.enter_vhost()
                return await make(visit)
            except Exception as error:
                problem = problem_of(error)
                if problem.status == 401 and asks_for_page(request.scope):
                    return to_login(request.scope)
                answer = visit.page("problem.html", problem.status, problem=problem)
                answer.headers.update(problem.headers or {})
                return answer

        return serve

    def render(self, template: str, **values: Any) -> str:
        """Return the text of a page."""
        pages = [each for each in self.titled if values["may_change"] or each[0] != "/users"]
        return self._environment.get_template(template).render(
            node=self._site.node.view(), pages=pages, **values
        )


class Visit:
    """One request of a page: `site` is the virtual host that was picked, `query` what stands in the URL."""

    def __init__(self, frame: Frame, request: Request, site: Site) -> None:
        self._frame = frame
        self.request = request
        self.site = site
        self.query = request.query_params

    def enter_vhost(self) -> None:
        """Have `site` be the virtual host that was picked, if it is still there and the user may enter it."""
        name = unquote(self.request.cookies.get(VHOST_COOKIE, ""))
        if name and self._may_enter(name):
            try:
                self.site = self.site.of_vhost(name)
            except VhostNotFound:
                return

    def _may_enter(self, vhost: str) -> bool:
        try:
            return identity_of(self.request.scope).login.may_enter(vhost)
        except Problem:
            return False

    @property
    def user(self) -> str:
        """The name of the user; "" for nobody, or where no name was asked for."""
        try:
            return identity_of(self.request.scope).user
        except Problem:
            return ""

    @property
    def may_change(self) -> bool:
        """Whether the user may change things."""
        try:
            return identity_of(self.request.scope).login.is_administrator
        except Problem:
            return False

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Answer with a page."""
        is_in = self.request.scope["state"].get("identity") is not None
        count = self.query.get("count", "")
        notice = _NOTICES.get(self.query.get("done", ""), "")
        text = self._frame.render(
            template,
            here=self.request.scope["path"],
            notice=notice.format(count=int(count) if count.isascii() and count.isdecimal() else "Some"),
            may_change=self.may_change,
            user=self.user,
            is_in=is_in,
            has_issuer=self.site.access.openid is not None,
            has_session=COOKIE in self.request.cookies,
            vhost=self.site.vhost,
            vhosts=[name for name in self.site.hub.vhosts() if self._may_enter(name)],
            **values,
        )
        return HTMLResponse(text, status, headers=HEADERS)

    def done(self, path: str, word: str, count: int | None = None) -> Response:
        """Answer that a form has done something: the page at `path` says it."""
        more = "" if count is None else f"&count={count}"
        return RedirectResponse(f"{path}?done={word}{more}", 303, headers=HEADERS)

    def part(self, name: str) -> str:
        """Return a part of the path."""
        return unquote(self.request.path_params[name])

    async def form(self) -> Form:
        """Return what a form says."""
        return Form(
            await self.request.form(
                max_fields=limits.HTTP_FORM_FIELDS_MAX, max_part_size=limits.HTTP_BODY_BYTES_MAX
            )
        )


class Form:
    """The fields of a form."""

    def __init__(self, data: FormData) -> None:
        self._data = data

    def __getitem__(self, name: str) -> str:
        """Return a field; raises Problem where it is missing."""
        return self.get(name, None)

    def get(self, name: str, default: str | None = "") -> str:
        """Return a field that may be missing."""
        value = self._data.get(name, default)
        if not isinstance(value, str):
            raise Problem(400, "invalid_argument", f"{name}: missing")
        return value.replace("\r\n", "\n")


def at(*parts: str) -> str:
    """Return a path of these parts."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


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
