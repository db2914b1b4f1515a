"""The `mqtt` section: what the broker offers MQTT clients, and holds them to."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config import limits
from config.bridge_settings import BridgeSettings
from config.field_types import Count, DurationMs, RetentionMs, Section, SizeBytes


def _check_packet_size(value: int) -> int:
    if not limits.MQTT_PACKET_BYTES_MIN <= value <= limits.MQTT_PACKET_BYTES_CEILING:
        raise ValueError("must be between 1KiB and 256MiB")
    return value


class MqttSessionSettings(Section):
    """MQTT sessions that outlive their connections."""

    expiry_ms: RetentionMs = Field(default=7 * 86_400_000, validation_alias="expiry")
    """How long a session of MQTT 3.1.1 (clean session 0) lasts without a connection, in ms; None: for ever.
    """
    max_expiry_ms: RetentionMs = Field(default=None, validation_alias="max_expiry")
    """The longest an MQTT 5 client may ask for, in ms; None: as long as it likes."""
    max_queued_messages: Count = Field(default=100_000, ge=0, le=limits.SESSION_QUEUED_MESSAGES_MAX)
    """Messages that may wait for one session; 0: no limit."""
    max_queued_bytes: SizeBytes = 256 * limits.MIB
    """Bytes of payload that may wait for one session; 0: no limit."""
    drop: Literal["oldest", "newest", "reject"] = "oldest"
    """Which message gives way where there is no room, or whether publishers are refused."""


class MqttSettings(Section):
    """MQTT clients, whatever listener they come by."""

    sys_interval_ms: DurationMs = Field(default=10_000, validation_alias="sys_interval")
    """How often `$SYS/...` is published, in ms; 0: not at all."""
    sys_readers: Literal["monitoring", "everyone"] = "monitoring"
    """The clients that may read it: users with the tag monitoring (or administrator), or all clients."""
    sessions: MqttSessionSettings = MqttSessionSettings()
    bridges: tuple[BridgeSettings, ...] = Field(default=(), max_length=limits.BRIDGES_MAX)
    """Other MQTT brokers, and what is exchanged with them."""
    max_qos: Literal[0, 1, 2] = 2
    """The highest QoS that clients may publish with."""
    retain: bool = True
    """Whether clients may have messages retained."""
    max_packet_size_bytes: Annotated[SizeBytes, AfterValidator(_check_packet_size)] = Field(
        default=limits.MQTT_PACKET_BYTES_MAX, validation_alias="max_packet_size"
    )
    """A larger packet ends the connection."""
    receive_maximum: Count = Field(default=limits.MQTT_RECEIVE_MAXIMUM, ge=1, le=65_535)
    """Publishes of QoS 1 and 2 that a client may have unanswered."""
    topic_alias_maximum: Count = Field(default=limits.MQTT_TOPIC_ALIAS_MAXIMUM, ge=0, le=65_535)
    """Topic aliases that a client may use."""
    max_keep_alive_ms: DurationMs = Field(default=0, validation_alias="max_keep_alive")
    """A client's longer keep alive, or none, becomes this one, in ms; 0: clients have what they ask for."""
    response_information: Annotated[str, Field(max_length=1_024)] = ""
    """The answer to clients that ask for response information: where their answers may go."""
    server_reference: Annotated[str, Field(max_length=1_024)] = ""
    """Where clients are sent when the broker stops."""
    shared_subscriptions: Literal["balanced", "sticky", "random"] = "balanced"
    """Which member of a share group gets a message."""

    max_unsent_bytes: SizeBytes = Field(
        default=limits.SUBSCRIBER_BUFFER_BYTES_MAX,
        ge=limits.SUBSCRIBER_BUFFER_BYTES_MIN,
        le=limits.SUBSCRIBER_BUFFER_BYTES_CEILING,
    )
    """The output that may wait for a client that reads too slowly; beyond that it misses messages, which are
    counted.
    """
    ignore_colons_in_username: bool = False
    """Whether `vhost:user` is the name of a user, and not a user in a virtual host."""
    connect_rate: Count = Field(default=0, ge=0, le=1_000_000)
    """CONNECTs a second, of all clients together; 0: as many as come."""
    message_rate: Count = Field(default=0, ge=0, le=10_000_000)
    """Publishes a second of one client; 0: as many as come."""

    @property
    def keep_alive_s_max(self) -> int:
        """`max_keep_alive_ms` in the seconds of the protocol, rounded up; 0: none."""
        return min(-(-self.max_keep_alive_ms // 1000), 65_535)
