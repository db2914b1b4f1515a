from collections.abc import Callable

from broker.engine.traffic import Targets
from broker.mqtt.topology.subscription import Subscriber
from broker.network.transport import Transport
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.events import LonePublish, PublishShape
from queue_manager.quota_accounts import Share
from queue_manager.validity import Version

class Door:
    is_open: bool
    def __init__(
        self,
        transport: Transport,
        connection: MqttConnection,
        write: Callable[[bytes], None],
        monotonic: Callable[[], float],
        chunk_bytes_max: int,
        gathered_max: int,
        /,
    ) -> None: ...
    def data_received(self, data: bytes, /) -> None: ...
    def expect(
        self,
        shape: PublishShape,
        topic: bytes,
        tail: bytes,
        direct: list[Subscriber],
        targets: Targets,
        version: Version,
        share: Share,
        /,
    ) -> None: ...
    def close(self) -> None: ...
    def dissolve(self) -> None: ...

def joined(gathered: list[LonePublish], packet_ids: list[int], /) -> bytes: ...
