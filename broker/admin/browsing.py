"""Messages of a listing as administration shows them: decoded, as an AMQP consumer sees them."""

from __future__ import annotations

from broker.admin.views import MessageView, Page
from broker.properties import amqp, templates
from queue_manager.api import BrowsedMessage, BrowsedPage, State
from storage.envelope import EnvelopeTemplate


def page_of(queue: str, state: State, page: BrowsedPage) -> Page:
    """A page of a queue's messages in a state."""
    return Page(messages=tuple([_view(queue, state, found) for found in page.messages]), next=page.next)


def _view(queue: str, state: State, found: BrowsedMessage) -> MessageView:
    published = found.published
    headers, fields = describe(templates.template_of(published))
    return MessageView(
        message_id=f"{queue}:{found.name}",
        offset=found.offset,
        topic=published.topic,
        state=state,
        attempts=found.attempts,
        received_at_ms=found.received_at_ms,
        time_ms=found.time_ms,
        persistent=published.persistent,
        headers=headers,
        properties=fields,
        body=found.body,
        consumer=found.consumer,
    )


def describe(template: EnvelopeTemplate) -> tuple[dict[str, object], dict[str, object]]:
    """Headers and properties of messages of this template, as an AMQP consumer sees them."""
    return amqp.read_fields(templates.as_amqp(template))
