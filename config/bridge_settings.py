"""Settings of a bridge to another MQTT broker: an entry of `mqtt.bridges`."""

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from config import limits
from config.field_types import Count, SecretText, Section
from config.name_rules import DEFAULT_VHOST

_ADDRESS: Final = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+):[0-9]{1,5}")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def _check_address(value: str) -> str:
    if not _ADDRESS.fullmatch(value) or not 0 < int(value.rpartition(":")[2]) < 65_536:
        raise ValueError("must be host:port")
    return value


def _check_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("must be 1 to 64 of A-Z a-z 0-9 . _ -")
    return value


def _check_prefix(value: str) -> str:
    if "+" in value or "#" in value or "\0" in value:
        raise ValueError("must not hold wildcards")
    return value


Prefix = Annotated[str, AfterValidator(_check_prefix)]
BridgeProtocol = Literal["auto", "mqttv50", "mqttv311"]


class BridgeTopicSettings(Section):
    """The topics that go one way: `local_prefix` + `topic` here is `remote_prefix` + `topic` there."""

    topic: Annotated[str, Field(min_length=1)]
    """A topic filter, behind the prefixes."""
    qos: Annotated[Count, Field(ge=0, le=2)] = 1
    """At most; with 0 nothing waits while the other broker is away."""
    local_prefix: Prefix = ""
    remote_prefix: Prefix = ""


class BridgeSettings(Section):
    """Another broker, and what is exchanged with it."""

    name: Annotated[str, AfterValidator(_check_name)]
    address: Annotated[str, AfterValidator(_check_address)]
    """`host:port`."""
    protocol: BridgeProtocol = "auto"
    """The version that is spoken: MQTT 5 or 3.1.1; `auto`: 3.1.1 with a broker that refuses 5."""
    vhost: str = DEFAULT_VHOST
    """The virtual host whose topics are exchanged."""
    client_id: str = ""
    """As which the other broker knows this one; "": `bridge-<name>`."""
    username: str | None = None
    password: SecretText | None = Field(default=None, repr=False)
    tls: bool = False
    """Whether to connect with TLS, to a server whose certificate is valid for the host."""
    ca_file: str | None = None
    """The certificates of who may have signed it; None: those of the system."""
    out_topics: tuple[BridgeTopicSettings, ...] = Field(
        default=(), validation_alias="out", max_length=limits.BRIDGE_TOPICS_MAX
    )
    """The topics that are sent there."""
    in_topics: tuple[BridgeTopicSettings, ...] = Field(
        default=(), validation_alias="in", max_length=limits.BRIDGE_TOPICS_MAX
    )
    """The topics that are fetched from there."""

    @model_validator(mode="after")
    def _has_topics(self) -> "BridgeSettings":
        if not self.out_topics and not self.in_topics:
            raise ValueError("must have topics: out, in, or both")
        if any(not rule.qos for rule in self.out_topics):
            raise ValueError("what goes out waits for the other broker, so it has QoS 1 or 2")
        return self

    @property
    def host(self) -> str:
        """Of the address."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Of the address."""
        return int(self.address.rpartition(":")[2])

    @property
    def identifier(self) -> str:
        """The client identifier that is used."""
        return self.client_id or f"bridge-{self.name}"
