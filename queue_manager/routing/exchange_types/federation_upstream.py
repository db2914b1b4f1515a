"""Exchanges that another broker makes here to fetch through by federation: fanout, but for messages that have
been there, or have come over as many links as they may.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from queue_manager.errors import InvalidArgument
from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange_types.base import Headers
from queue_manager.routing.exchange_types.simple import FanoutMatcher

RECEIVED_FROM: Final = "x-received-from"
_HOPS: Final = "x-max-hops"
_NAME: Final = "x-downstream-name"
_VHOST: Final = "x-downstream-vhost"


class FederationUpstreamMatcher(FanoutMatcher):
    """Gives all bindings, or none: its arguments say who fetches."""

    reads_headers = True

    def __init__(self, arguments: Headers) -> None:
        """Raise InvalidArgument where an argument is missing or of another type."""
        super().__init__()
        hops, name, vhost = (arguments.get(key) for key in (_HOPS, _NAME, _VHOST))
        if not isinstance(hops, int) or isinstance(hops, bool) or hops < 1:
            raise InvalidArgument(f"Invalid argument, '{_HOPS}' must be a number above 0")
        if not isinstance(name, str) or not isinstance(vhost, str | None):
            raise InvalidArgument(f"Invalid argument, '{_NAME}' and '{_VHOST}' must be texts")
        self._hops_max = hops
        self._name = name
        self._vhost = vhost

    def match(self, keys: Sequence[str], headers: Headers) -> Iterable[Binding]:
        try:
            before = headers[RECEIVED_FROM]
        except KeyError:
            return self._bindings
        if not isinstance(before, list):
            return self._bindings
        is_over = len(before) >= self._hops_max or any(map(self._is_downstream, before))
        return () if is_over else self._bindings

    def _is_downstream(self, entry: object) -> bool:
        if not isinstance(entry, dict) or entry.get("cluster-name") != self._name:
            return False
        return self._vhost is None or entry.get("vhost", self._vhost) == self._vhost
