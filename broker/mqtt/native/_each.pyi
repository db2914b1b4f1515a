from collections.abc import Callable
from typing import Protocol

from broker.mqtt.publishing.publish import TopicTarget
from broker.mqtt.settling.outbound import Outbound
from broker.network.transport import Transport
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.events import LonePublish, PublishRun, PublishShape

class PassOnEach(Protocol):
    def __call__(
        self,
        data: bytes,
        known: dict[bytes, tuple[PublishShape, bytes]],
        connection: MqttConnection,
        target_type: type[TopicTarget],
        outbound_type: type[Outbound],
        run_of: Callable[[LonePublish], PublishRun],
        flushes: list[Transport],
        count_max: int,
        packet_bytes_max: int,
        unchecked_bytes_max: int,
        /,
    ) -> tuple[int, int]: ...

pass_on_each: PassOnEach
