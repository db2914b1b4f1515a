"""The events of an `AmqpConnection` for its front-end.

Events come in the order of the wire. A run stands for many messages; everything else for one frame.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from pamqp import base

from protocols.amqp091.content import check_properties

ACK: Final = 0
NACK: Final = 1
REJECT: Final = 2


@dataclass(slots=True, eq=False)
class OtherVersion:
    """The client began with a protocol header that is another connection's: `data` is all that it said, and
    this connection takes nothing more.
    """

    data: bytes


@dataclass(slots=True, eq=False)
class AuthRequested:
    """The client answered connection.start: call `accept_auth()` or `refuse_auth(reason)`."""

    mechanism: str
    username: str
    password: str
    client_properties: dict[str, Any]


@dataclass(slots=True, eq=False)
class SecretChanged:
    """The client has another secret from now on; its answer is in the output."""

    secret: bytes


@dataclass(slots=True, eq=False)
class OpenRequested:
    """The client asked for a virtual host: call `accept_open()` or `fail(NOT_ALLOWED, ...)`."""

    vhost: str


@dataclass(slots=True, eq=False)
class ChannelOpened:
    """A channel was opened; channel.open-ok is already in the output."""

    channel: int


@dataclass(slots=True, eq=False)
class ChannelClosed:
    """A channel is gone: the client closed it, or confirmed the close we sent.

    What is sent on it from now on is dropped, until the client opens the number again.
    """

    channel: int


@dataclass(slots=True, eq=False)
class ChannelFailed:
    """The broker closed the channel over an error found while decoding; `ChannelClosed` follows in time.

    Not sent for `fail_channel` called by the front-end, which knows.
    """

    channel: int
    code: int
    reason: str


@dataclass(slots=True, eq=False)
class MethodReceived:
    """Any other legal method (queue.*, exchange.*, basic.qos, ..., tx.*); `method` is a pamqp command."""

    channel: int
    method: base.Frame


@dataclass(slots=True, eq=False)
class PublishAddress:
    """The fields of a basic.publish method; shared by all shapes with the same method bytes.

    `context` is the front-end's to use: it survives when every message has other properties. `unseen` counts
    the publishes since one had properties seen before.
    """

    exchange: str
    routing_key: str
    mandatory: bool
    context: Any = None
    shapes: "dict[bytes, PublishShape]" = field(default_factory=dict)
    unseen: int = 0


@dataclass(slots=True, eq=False)
class PublishShape:
    """A publish without its body: address and raw properties (flags and list, checked, undecoded).

    The same object comes back while method and properties repeat, within a bounded cache; `context` is the
    front-end's to use.
    """

    address: PublishAddress
    properties: bytes
    context: Any = None


@dataclass(slots=True, eq=False)
class PublishRun:
    """Consecutive publishes on one channel with one shape; `bodies` holds each message's whole body."""

    channel: int
    shape: PublishShape
    bodies: list[bytes]

    @property
    def address(self) -> PublishAddress:
        """Where they go."""
        return self.shape.address

    def varied(self) -> "VariedPublishRun":
        """Return the same publishes as a run of which each has properties of its own."""
        count = len(self.bodies)
        raw = self.shape.properties
        modes = [check_properties(raw)] * count
        return VariedPublishRun(self.channel, self.address, [raw] * count, modes, self.bodies[:])

    def singles(self) -> "list[PublishRun]":
        """Return the same publishes one by one."""
        return [PublishRun(self.channel, self.shape, [body]) for body in self.bodies]


@dataclass(slots=True, eq=False)
class VariedPublishRun:
    """Consecutive publishes on one channel to one address, each with raw properties of its own.

    `modes` are their delivery modes as `content.check_properties` gives them: -1 where a property asks
    something of the broker. `context` is the front-end's to use.
    """

    channel: int
    address: PublishAddress
    properties: list[bytes] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    context: Any = None

    def extend(self, other: "VariedPublishRun") -> None:
        """Take the publishes of another run to the same address, behind these."""
        self.properties += other.properties
        self.modes += other.modes
        self.bodies += other.bodies

    def singles(self) -> list[PublishRun]:
        """Yield the same, one by one."""
        return [
            PublishRun(self.channel, PublishShape(self.address, raw), [body])
            for raw, body in zip(self.properties, self.bodies, strict=True)
        ]


@dataclass(slots=True, eq=False)
class SettleRun:
    """Consecutive single acks (or nacks, rejects) of one channel, or one `multiple` with one tag.

    `kind` is ACK, NACK or REJECT; `requeue` is False for acks. Tags are as the client sent them: 0 with
    `multiple` means all, and an unknown one is the front-end's to refuse.
    """

    channel: int
    kind: int
    delivery_tags: list[int]
    multiple: bool
    requeue: bool

    def add(self, delivery_tags: list[int]) -> None:
        """Add more of the same."""
        self.delivery_tags += delivery_tags


@dataclass(slots=True, eq=False)
class ConnectionLost:
    """The last event, once per connection: nothing more comes and nothing more can be sent.

    `code` is the AMQP reply code of the close (the client's own when `by_peer`), or 0 when the transport
    ended or the peer fell silent without a close.
    """

    code: int
    reason: str
    by_peer: bool
