"""Serving an ASGI application on connections that a listener let in, in the broker's own event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from email.utils import formatdate
from typing import cast

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from broker.http.http_connection import HttpConnection, WebSocketConnection
from config import limits


class HttpServer:
    """uvicorn without its sockets and signals: the broker has those."""

    def __init__(self, app: ASGIApp, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._state = ServerState()
        self._config = Config(
            app,
            interface="asgi3",
            http=HttpConnection,
            ws=WebSocketConnection,
            ws_max_size=limits.HTTP_SOCKET_MESSAGE_BYTES_MAX,
            ws_max_queue=limits.HTTP_SOCKET_MESSAGES_MAX,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=limits.HTTP_KEEP_ALIVE_S,
        )
        _keep_quiet()
        self._config.load()
        self._dating: asyncio.TimerHandle | None = None

    def accept(self, lost: Callable[[], None]) -> asyncio.Protocol:
        """Return what drives a connection; `lost` is called once it is gone."""
        if self._dating is None:
            self._set_date()
        return HttpConnection(self._config, self._state, self._loop, lost)

    @property
    def is_busy(self) -> bool:
        """Whether somebody is connected."""
        return bool(self._state.connections)

    def shut_down(self) -> None:
        """Take no further requests: idle connections end, the others after their answer."""
        for connection in list(self._state.connections):
            connection.shutdown()

    def abort(self) -> None:
        """End what is left."""
        if self._dating is not None:
            self._dating.cancel()
            self._dating = None
        for connection in list(self._state.connections):
            cast(HttpConnection | WebSocketConnection, connection).abort()
        for task in list(self._state.tasks):
            task.cancel()

    def _set_date(self) -> None:
        """Set the date (RFC 9110, 6.6.1); once a second while there are connections."""
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        if self._state.connections or self._dating is None:
            self._dating = self._loop.call_later(1, self._set_date)
        else:
            self._dating = None


def _keep_quiet() -> None:
    """Log nothing of a peer's mistakes, which are answered; ours are logged where they are caught."""
    for name in ("uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.CRITICAL)
        logger.propagate = False
