"""The events of an `Amqp10Connection` for its front-end.

Events come in the order of the wire. A run stands for many messages; everything else for one frame.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from protocols.amqp10.constants import UINT_MAX
from protocols.amqp10.link import Link
from protocols.amqp10.performatives import Begin, Error, Open


@dataclass(slots=True, eq=False)
class AuthRequested:
    """The client wants to be let in: call `accept_auth()` or `refuse_auth(reason)`.

    `mechanism` is "" for a client without SASL. `username` and `password` are those of PLAIN.
    """

    mechanism: str
    username: str
    password: str


@dataclass(slots=True, eq=False)
class OpenRequested:
    """The client opens: call `accept_open()` or `fail(...)`. `open.hostname` may name a virtual host."""

    open: Open


@dataclass(slots=True, eq=False)
class SessionBegun:
    """A session has begun; the answer is in the output."""

    channel: int
    begin: Begin


@dataclass(slots=True, eq=False)
class SessionEnded:
    """A session is gone with all its links: the client ended it, or broke the protocol on it.

    Not sent for `end_session` called by the front-end, which knows.
    """

    channel: int
    error: Error | None
    by_peer: bool


@dataclass(slots=True, eq=False)
class AttachRequested:
    """The client attaches a link: call `accept_attach(link, ...)` or `refuse_attach(link, ...)`."""

    link: Link


@dataclass(slots=True, eq=False)
class LinkDetached:
    """A link is gone: the client detached it (the answer is in the output), or broke the protocol on it.

    Not sent for `detach` called by the front-end, nor when the session or the connection goes.
    """

    link: Link
    closed: bool
    error: Error | None
    by_peer: bool


@dataclass(slots=True, eq=False)
class TransferRun:
    """Whole deliveries that came one behind the other on one session, alike but for links, tags and payloads.

    Their IDs are `first_id` and what follows on it, modulo 2**32. `links` has the link of each, and is empty
    if that is `link` for all. `state` is a state that the client gave them, such as that of a transaction.
    The credit that they took is given anew by `grant`.
    """

    link: Link
    first_id: int
    settled: bool
    message_format: int
    state: Any
    tags: list[bytes] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    def of_one_link(self) -> list[TransferRun]:
        """Return runs of one link each, in order."""
        runs = []
        begin = 0
        for link, same in groupby(self.links):
            end = begin + len(list(same))
            runs.append(
                TransferRun(
                    link,
                    self.first_id + begin & UINT_MAX,
                    self.settled,
                    self.message_format,
                    self.state,
                    self.tags[begin:end],
                    self.payloads[begin:end],
                )
            )
            begin = end
        return runs


@dataclass(slots=True, eq=False)
class DispositionRun:
    """The client's word on deliveries, the same on all.

    With `role` RECEIVER (True), of those that the broker sent: `state` is an outcome. With SENDER, of those
    that the client sent: it settles them. `ranges` hold first and last delivery ID, last included; numbers
    are modulo 2**32, and those that are not known are the front-end's to ignore.
    """

    channel: int
    role: bool
    settled: bool
    state: Any
    ranges: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class CreditChanged:
    """The client gave credit on a link that it receives on, see `link.credit`; or it used some up on one that
    it sends on, by a delivery that it aborted.

    With `link.drain`, call `drained(link)` once nothing is left to send.
    """

    link: Link


@dataclass(slots=True, eq=False)
class WindowOpened:
    """The client takes transfers on this session again, after `session_room` was 0."""

    channel: int


@dataclass(slots=True, eq=False)
class ConnectionLost:
    """The last event, once per connection: nothing more comes and nothing more can be sent.

    `condition` is the error condition of the close (the client's own when `by_peer`), "" where there was
    none.
    """

    condition: str
    reason: str
    by_peer: bool
