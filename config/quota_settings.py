"""Settings of quotas: how much a virtual host or a user may have."""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field

from config import limits
from config.field_types import Count, Section, SizeBytes

_Most = Annotated[Count, Field(ge=0, le=limits.QUOTA_MAX)]
_PREFIX: Final = "max_"


class QuotaSettings(Section):
    """What a virtual host or a user may have. 0: as much as the broker takes."""

    max_connections: _Most = 0
    """Clients that are connected at a time."""
    max_channels: _Most = 0
    """Channels of AMQP 0.9.1 and sessions of AMQP 1.0."""
    max_consumers: _Most = 0
    """Consumers of queues, of whatever protocol."""
    max_queues: _Most = 0
    max_exchanges: _Most = 0
    """Exchanges, without those that are always there."""
    max_bindings: _Most = 0
    """Bindings of exchanges."""
    max_subscriptions: _Most = 0
    """Topic filters that MQTT clients are subscribed to, also those of lasting sessions."""
    max_sessions: _Most = 0
    """MQTT sessions that outlive their connection."""
    max_retained: _Most = 0
    """Topics with a retained message."""
    max_bytes: SizeBytes = 0
    """Payload that waits in queues, and that of retained messages."""
    max_messages_in: _Most = 0
    """Messages a second that are published; who is quicker is not read from."""
    max_bytes_in: SizeBytes = 0
    """Bytes a second that clients send."""
    max_messages_out: _Most = 0
    """Messages a second that clients are sent; consumers get no more credit."""
    max_bytes_out: SizeBytes = 0
    """Bytes a second that clients are sent."""

    def quotas(self) -> Mapping[str, int]:
        """Return those that bound something, by the name of what they bound."""
        return {name: most for name in QUOTAS if (most := getattr(self, _PREFIX + name))}


QUOTAS: Final = tuple(name.removeprefix(_PREFIX) for name in QuotaSettings.model_fields)
"""What there are quotas of."""


def quota_field(name: str) -> str:
    """Return the setting of a quota."""
    return _PREFIX + name
