"""The OpenAPI document of the listener `mqcore`."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from broker.version import PRODUCT, VERSION
from config import limits

_QUEUE: Final = {
    "name": "queue",
    "in": "path",
    "required": True,
    "description": "The name of a queue.",
    "schema": {"type": "string", "minLength": 1},
}
_ID: Final = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "X-Message-Id of adding or fetching the message.",
    "schema": {"type": "string", "minLength": 1},
}


def _query(name: str, description: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    parameter = {"name": name, "in": "query", "required": required, "description": description}
    return {**parameter, "schema": schema}


_VHOST: Final = _query("vhost", "A virtual host; without one `/`.", {"type": "string", "minLength": 1})
_GROUP: Final = _query("group", "A consumer group; without one the default group.", {"type": "string"})
_COUNT: Final = _query(
    "count",
    "Fetch up to so many; the answer is JSON then.",
    {"type": "integer", "minimum": 1, "maximum": limits.MQCORE_BATCH_MESSAGES_MAX},
)
_DURATION: Final = {"type": "string", "examples": ["30s", "5m", "20"]}
_WAIT: Final = _query("wait", "How long to wait for a message where none is ready.", _DURATION)
_VISIBILITY: Final = _query("visibility", "How long fetched messages are kept from others.", _DURATION)


def _answers(*statuses: tuple[int, str]) -> dict[str, Any]:
    told = {400: "The request is wrong.", 403: "Not allowed.", 503: "Not now: see Retry-After."}
    return {str(status): {"description": text} for status, text in (*told.items(), *statuses)}


def _operation(
    name: str, summary: str, parameters: list[dict[str, Any]], *statuses: tuple[int, str]
) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [*parameters, _VHOST],
        "responses": _answers(*statuses),
    }


_NO_VHOST: Final = (404, "No such virtual host.")
_NO_QUEUE: Final = (404, "No such queue.")
_NO_MESSAGE: Final = (404, "No such queue or message.")


@cache
def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {"title": f"{PRODUCT}: MQ-Core", "version": VERSION},
        "paths": {
            "/{queue}": _of_queue(),
            "/{queue}/messages": {"get": _fetching(), "post": _adding(), "delete": _deleting_several()},
            "/{queue}/messages/{id}": _of_message(),
        },
    }


def _of_queue() -> dict[str, Any]:
    created = (200, "It was there."), (201, "Created.")
    deleted = (204, "Deleted.")
    return {
        "get": _operation("show_queue", "Fetch a queue.", [_QUEUE], (200, "It exists."), _NO_QUEUE),
        "put": _operation("create_queue", "Create a queue.", [_QUEUE], *created, _NO_VHOST),
        "delete": _operation(
            "delete_queue", "Delete a queue with all its messages.", [_QUEUE], deleted, _NO_QUEUE
        ),
    }


def _fetching() -> dict[str, Any]:
    return _operation(
        "fetch_message",
        "Fetch a message: nobody else gets it until it is deleted, or its time is over.",
        [_QUEUE, _GROUP, _COUNT, _WAIT, _VISIBILITY],
        (200, "X-Message-Id, and the message as the body."),
        (204, "No message can be fetched."),
        _NO_QUEUE,
    )


def _adding() -> dict[str, Any]:
    operation = _operation(
        "add_message",
        "Add a message; it is durable when the answer comes.",
        [_QUEUE, _query("batch", "The body is JSON with several messages.", {"enum": ["true"]})],
        (201, "Added: X-Message-Id, or with batch the IDs."),
        _NO_QUEUE,
        (413, "Larger than the queue takes."),
    )
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {**operation, "requestBody": {"content": {"application/octet-stream": binary}}}


def _deleting_several() -> dict[str, Any]:
    several = _query("id", "X-Message-Id, as often as wanted.", {"type": "string"}, required=True)
    return _operation(
        "delete_messages",
        "Delete several messages.",
        [_QUEUE, _GROUP, several],
        (200, "How many were there."),
        _NO_MESSAGE,
        (422, "Too many wait before one of them."),
    )


def _of_message() -> dict[str, Any]:
    return {
        "delete": _operation(
            "delete_message",
            "Delete a message, fetched or not.",
            [_QUEUE, _ID, _GROUP],
            (204, "Deleted."),
            _NO_MESSAGE,
            (422, "Too many wait before it."),
        ),
        "patch": _operation(
            "set_visibility",
            "Keep a fetched message longer, or give it back with 0.",
            [_QUEUE, _ID, _GROUP, {**_VISIBILITY, "required": True}],
            (204, "Done."),
            _NO_MESSAGE,
        ),
    }
