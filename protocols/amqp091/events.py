"""What an `AmqpConnection` tells its front-end.

Events come in the order of the wire. A run stands for many messages; everything else for one frame.
"""

from typing import Any, Final

from pamqp import base

from protocols.amqp091.content import check_properties

ACK: Final = 0
NACK: Final = 1
REJECT: Final = 2


class AuthRequested:
    """The client answered connection.start: call `accept_auth()` or `refuse_auth(reason)`."""

    __slots__ = ("client_properties", "mechanism", "password", "username")

    def __init__(
        self, mechanism: str, username: str, password: str, client_properties: dict[str, Any]
    ) -> None:
        self.mechanism = mechanism
        self.username = username
        self.password = password
        self.client_properties = client_properties


class SecretChanged:
    """The client has another secret from now on; its answer is in the output."""

    __slots__ = ("secret",)

    def __init__(self, secret: bytes) -> None:
        self.secret = secret


class OpenRequested:
    """The client asked for a virtual host: call `accept_open()` or `fail(NOT_ALLOWED, ...)`."""

    __slots__ = ("vhost",)

    def __init__(self, vhost: str) -> None:
        self.vhost = vhost


class ChannelOpened:
    """A channel was opened; channel.open-ok is already in the output."""

    __slots__ = ("channel",)

    def __init__(self, channel: int) -> None:
        self.channel = channel


class ChannelClosed:
    """A channel is gone: the client closed it, or confirmed the close we sent.

    What is sent on it from now on is dropped, until the client opens the number again.
    """

    __slots__ = ("channel",)

    def __init__(self, channel: int) -> None:
        self.channel = channel


class ChannelFailed:
    """The broker closed the channel over an error found while decoding; `ChannelClosed` follows in time.

    Not sent for `fail_channel` called by the front-end, which knows.
    """

    __slots__ = ("channel", "code", "reason")

    def __init__(self, channel: int, code: int, reason: str) -> None:
        self.channel = channel
        self.code = code
        self.reason = reason


class MethodReceived:
    """Any other legal method (queue.*, exchange.*, basic.qos, ..., tx.*); `method` is a pamqp command."""

    __slots__ = ("channel", "method")

    def __init__(self, channel: int, method: base.Frame) -> None:
        self.channel = channel
        self.method = method


class PublishAddress:
    """What the basic.publish method says; shared by all shapes with the same method bytes.

    `context` is the front-end's to use: it survives when every message has other properties. `unseen` counts
    the publishes since one had properties seen before.
    """

    __slots__ = ("context", "exchange", "immediate", "mandatory", "routing_key", "shapes", "unseen")

    def __init__(self, exchange: str, routing_key: str, mandatory: bool, immediate: bool) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.immediate = immediate
        self.context: Any = None
        self.shapes: dict[bytes, PublishShape] = {}
        self.unseen = 0


class PublishShape:
    """A publish without its body: address and raw properties (flags and list, checked, undecoded).

    The same object comes back while method and properties repeat, within a bounded cache; `context` is the
    front-end's to use.
    """

    __slots__ = ("address", "context", "properties")

    def __init__(self, address: PublishAddress, properties: bytes) -> None:
        self.address = address
        self.properties = properties
        self.context: Any = None

    @property
    def exchange(self) -> str:
        """Name of the exchange, "" for the default one."""
        return self.address.exchange

    @property
    def routing_key(self) -> str:
        """Routing key, for the default exchange a queue's name or address."""
        return self.address.routing_key

    @property
    def mandatory(self) -> bool:
        """Whether an unroutable message must come back as basic.return."""
        return self.address.mandatory

    @property
    def immediate(self) -> bool:
        """Always False: a publish asking for it is refused with 540."""
        return self.address.immediate


class PublishRun:
    """Consecutive publishes on one channel with one shape; `bodies` holds each message's whole body."""

    __slots__ = ("bodies", "channel", "shape")

    def __init__(self, channel: int, shape: PublishShape, bodies: list[bytes]) -> None:
        self.channel = channel
        self.shape = shape
        self.bodies = bodies

    @property
    def address(self) -> PublishAddress:
        """Where they go."""
        return self.shape.address

    def varied(self) -> "VariedPublishRun":
        """Return the same publishes as a run of which each has properties of its own."""
        varied = VariedPublishRun(self.channel, self.address)
        count = len(self.bodies)
        varied.properties += [self.shape.properties] * count
        varied.modes += [check_properties(self.shape.properties)] * count
        varied.bodies += self.bodies
        return varied

    def singles(self) -> "list[PublishRun]":
        """Return the same publishes one by one."""
        return [PublishRun(self.channel, self.shape, [body]) for body in self.bodies]


class VariedPublishRun:
    """Consecutive publishes on one channel to one address, each with raw properties of its own.

    `modes` are their delivery modes as `content.check_properties` gives them: -1 where a property asks
    something of the broker. `context` is the front-end's to use.
    """

    __slots__ = ("address", "bodies", "channel", "context", "modes", "properties")

    def __init__(self, channel: int, address: PublishAddress) -> None:
        self.channel = channel
        self.address = address
        self.properties: list[bytes] = []
        self.modes: list[int] = []
        self.bodies: list[bytes] = []
        self.context: Any = None

    def extend(self, other: "VariedPublishRun") -> None:
        """Take the publishes of another run to the same address, behind these."""
        self.properties += other.properties
        self.modes += other.modes
        self.bodies += other.bodies

    def singles(self) -> list[PublishRun]:
        """The same, one by one."""
        return [
            PublishRun(self.channel, PublishShape(self.address, raw), [body])
            for raw, body in zip(self.properties, self.bodies, strict=True)
        ]


class SettleRun:
    """Consecutive single acks (or nacks, rejects) of one channel, or one `multiple` with one tag.

    `kind` is ACK, NACK or REJECT; `requeue` is False for acks. Tags are as the client sent them: 0 with
    `multiple` means all, and an unknown one is the front-end's to refuse.
    """

    __slots__ = ("channel", "delivery_tags", "kind", "multiple", "requeue")

    def __init__(
        self, channel: int, kind: int, delivery_tags: list[int], multiple: bool, requeue: bool
    ) -> None:
        self.channel = channel
        self.kind = kind
        self.delivery_tags = delivery_tags
        self.multiple = multiple
        self.requeue = requeue

    def add(self, delivery_tags: list[int]) -> None:
        """More of the same."""
        self.delivery_tags += delivery_tags


class ConnectionLost:
    """The last event, once per connection: nothing more comes and nothing more can be sent.

    `code` is the AMQP reply code of the close (the client's own when `by_peer`), or 0 when the transport
    ended or the peer fell silent without a close.
    """

    __slots__ = ("by_peer", "code", "reason")

    def __init__(self, code: int, reason: str, by_peer: bool) -> None:
        self.code = code
        self.reason = reason
        self.by_peer = by_peer
