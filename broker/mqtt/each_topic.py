"""Publishes of one client, each to another topic than the next, passed on in C."""

from typing import TYPE_CHECKING

from broker.mqtt.publishing.publish import TopicTarget
from broker.mqtt.settling.outbound import Outbound
from broker.mqtt.settling.publish_answers import ClientPublisher
from broker.network.transport import Transport
from config import limits
from protocols.mqtt.events import PublishShape, run_of

if TYPE_CHECKING:
    from broker.mqtt.native._each import PassOnEach


class EachTopic:
    """Takes the publishes of QoS 1 that a chunk begins with, as far as each needs nothing but to be passed on
    as it is to those who are subscribed, and its PUBACK.

    What one who commands many devices sends. Their order with what the client said before is kept, since all
    of that has had its turn.
    """

    __slots__ = ("_connection", "_packet_bytes_max", "_pass_on_each", "_publisher", "_transport")

    def __init__(self, pass_on_each: "PassOnEach", transport: Transport, publisher: ClientPublisher) -> None:
        self._pass_on_each = pass_on_each
        self._transport = transport
        self._publisher = publisher
        self._connection = connection = publisher.client.connection
        self._packet_bytes_max = connection.offer.packet_bytes_max

    def take(
        self, data: bytes, known: dict[bytes, tuple[PublishShape, bytes]], count_max: int
    ) -> tuple[int, int]:
        """See `protocols.mqtt.connection.TakeFirst`; a bug of ours ends the connection."""
        transport = self._transport
        if not self._publisher.publishes_directly or transport.is_behind or transport.share.is_paced:
            return 0, 0
        flushes: list[Transport] = []
        try:
            return self._pass_on_each(
                data,
                known,
                self._connection,
                TopicTarget,
                Outbound,
                run_of,
                flushes,
                min(count_max, limits.PASSED_ON_EACH_MAX),
                self._packet_bytes_max,
                limits.ROOM_CHECK_BYTES,
            )
        except Exception as error:
            transport.lone_failed(error)
            return 0, 0
        finally:
            if flushes:
                self._publisher.hub.want_flushes(flushes)
