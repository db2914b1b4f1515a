"""The pages for people, made on the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from broker.http.guard import check_operator, identity_of
from broker.http.problems import problem_of
from broker.http.site import Site

TEMPLATES: Final = Path(__file__).parent / "templates"

_SECURITY: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Pages:
    """Writes pages from templates."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, auto_reload=False
        )

    def page(self, name: str, status: int = 200, **values: Any) -> Response:
        """The page that a template makes of `values`."""
        text = self._environment.get_template(name).render(node=self._site.node.view(), **values)
        return HTMLResponse(text, status, headers=_SECURITY)

    async def queues(self, request: Request) -> Response:
        """All queues."""
        after = request.query_params.get("after", "")
        return self.page("queues.html", listing=await self._site.admin.queue_page(after=after))

    def guarded(self, make: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """`make`, with a page that says what went wrong."""

        async def serve(request: Request) -> Response:
            try:
                check_operator(identity_of(request.scope), is_looking=True)
                made: Response = await make(request)
                return made
            except Exception as error:
                problem = problem_of(error)
                answer = self.page("problem.html", problem.status, problem=problem)
                answer.headers.update(problem.headers or {})
                return answer

        return serve
