"""The pages of queues, and what their forms do."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.responses import Response

from broker.admin.admin_views import MessageView, QueueView, State
from broker.http.guard import identity_of
from broker.http.pages.visit import Form, Visit, at
from broker.http.problems import Problem
from broker.http.v1.listings import list_epochs
from broker.http.v1.queues import QueueDefinition, set_queue
from broker.http.values import plain, shown
from config import limits
from queue_manager.address import address_of
from queue_manager.api import STATES
from queue_manager.errors import QueueManagerError

_COUNTS: Final = (
    ("Ready", "ready"),
    ("In flight", "in_flight"),
    ("Delayed", "delayed"),
    ("Scheduled", "scheduled"),
    ("Failed", "failed"),
    ("Wanted by no group", "unwanted"),
    ("Consumers", "consumers"),
    ("Published", "published"),
    ("Redelivered", "redelivered"),
)


async def show_queues(visit: Visit) -> Response:
    """Show all queues, a page at a time."""
    name, after = visit.query.get("name", ""), visit.query.get("after", "")
    found = await visit.site.admin.queue_page(after=after, name=name)
    return _listing(
        visit, "Queues", list(found.items), "No queues.", name=name, total=found.total, next=found.next
    )


async def show_streams(visit: Visit) -> Response:
    """Show queues that keep what was read."""
    found = [view for view in await visit.site.queues() if view.type == "stream"]
    return _listing(visit, "Streams", found, "No streams: make a queue of the type stream.")


async def show_scheduled(visit: Visit) -> Response:
    """Show queues with messages that are due later."""
    found = [view for view in await visit.site.queues() if view.scheduled]
    return _listing(visit, "Scheduled messages", found, "Nothing is scheduled.", suffix="?state=scheduled")


async def show_dead_letters(visit: Visit) -> Response:
    """Show queues that take what others gave up, and those with failed messages."""
    views = await visit.site.queues()
    targets = {view.policy.dead_letter for view in views}
    found = [view for view in views if view.name in targets or view.failed]
    nothing = "No dead letters: no queue has any, nor failed messages."
    return _listing(visit, "Dead letters and failed messages", found, nothing)


def _listing(
    visit: Visit,
    title: str,
    items: list[QueueView],
    nothing: str,
    *,
    name: str | None = None,
    total: int = 0,
    next: str | None = None,
    suffix: str = "",
) -> Response:
    return visit.page(
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


async def show_queue(visit: Visit) -> Response:
    """Show one queue: settings, policies, groups, and messages by state."""
    admin, query = visit.site.admin, visit.query
    name = visit.part("queue")
    view = await admin.queue(name)
    state: State = next((each for each in STATES if each == query.get("state")), "ready")
    group = query.get("group")
    problem, messages, following = "", [], None
    try:
        page = await admin.browse(name, group, state, after=query.get("after"), limit=50)
        messages, following = [_shown_message(each) for each in page.messages], page.next
    except QueueManagerError as error:
        problem = error.reason
    return visit.page(
        "queue.html",
        queue=view,
        counts=[(title, getattr(view, field)) for title, field in _COUNTS],
        groups=await admin.groups(name),
        epochs=await list_epochs(visit.site, name, after=query.get("producer", "")),
        states=STATES,
        state=state,
        group=group,
        problem=problem,
        messages=messages,
        next=following,
    )


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


async def make_queue(visit: Visit) -> Response:
    """Make a queue."""
    form = await visit.form()
    name = form["queue"]
    await _change(visit, name, {"type": form.get("type", "classic")})
    return visit.done(at("queues", name), "made")


async def _change(visit: Visit, name: str, patch: dict[str, Any]) -> None:
    caller = identity_of(visit.request.scope)
    await set_queue(visit.site, name, caller, QueueDefinition.model_validate(patch))


async def change_queue(visit: Visit) -> Response:
    """Do what a form on the page of a queue asks for."""
    name, what = visit.part("queue"), visit.part("what")
    form = await visit.form()
    admin, place = visit.site.admin, at("queues", name)
    if what == "set":
        await _change(visit, name, _patch(form["key"], form.get("value")))
        return visit.done(place, "changed")
    if what == "publish":
        rest, kind = form.get("rest"), form.get("content_type")
        properties: dict[str, Any] = {"content_type": kind} if kind else {}
        await admin.queue(name)
        address = f"{address_of(name)}/{rest}" if rest else name
        await admin.publish(address, form.get("body").encode(), **properties)
        return visit.done(place, "published")
    if what in ("pause", "resume"):
        change = admin.pause if what == "pause" else admin.resume
        await change(name, publish=form["what"] == "publish", deliver=form["what"] == "deliver")
        return visit.done(place, f"{what}d")
    if what == "purge":
        return visit.done(place, "dropped", await admin.purge(name))
    if what == "delete":
        await admin.delete(name)
        return visit.done("/queues", "deleted")
    if what == "redrive":
        return visit.done(place, "redriven", await admin.redrive(name, form.get("group")))
    if what == "redrive-dead-letters":
        return visit.done(place, "sent-back", await admin.redrive_dead_letters(name))
    if what == "move":
        return visit.done(place, "moved", await _move(visit, name, form))
    raise Problem(404, "not_found", "no such form")


def _patch(key: str, text: str) -> dict[str, Any]:
    """Return the change of one setting; an empty text puts it back to its default."""
    try:
        value: Any = json.loads(text) if text else None
    except ValueError:
        value = text
    for part in reversed(key.split(".")):
        value = {part: value}
    patch: dict[str, Any] = value
    return patch


async def _move(visit: Visit, name: str, form: Form) -> int:
    wanted = form.get("limit", "1000")
    return await visit.site.admin.move(
        name,
        form["to"],
        group=form.get("group") or None,
        state="failed" if form.get("state") == "failed" else "ready",
        limit=int(wanted) if wanted.isdecimal() else 0,
    )
