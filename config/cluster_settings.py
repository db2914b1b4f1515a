"""The `cluster` section: several brokers on one object store."""

import socket
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from config import limits
from config.field_types import DurationMs, Section


def _check_lease(value: int) -> int:
    if value < limits.LEASE_MS_MIN:
        raise ValueError(f"must be at least {limits.LEASE_MS_MIN} ms")
    if value * limits.LEASES_WITHIN_GARBAGE_AGE >= 1_000 * limits.STORE_LEASED_GARBAGE_AGE_MIN_S:
        raise ValueError(
            f"{limits.LEASES_WITHIN_GARBAGE_AGE} leases must be shorter than"
            f" {limits.STORE_LEASED_GARBAGE_AGE_MIN_S} s, the age at which what fences a broker may be"
            " deleted from the object store as garbage"
        )
    return value


def _check_listen(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if value and not (host and colon and port.isdecimal() and 0 < int(port) < 65_536 - limits.SHARDS_MAX):
        raise ValueError(
            f"must be HOST:PORT, with a port below {65_536 - limits.SHARDS_MAX}: each shard takes the port of"
            " its number above it"
        )
    return value


class NodeTlsSettings(Section):
    """The certificates by which nodes know each other."""

    cert_file: str
    """PEM: the certificate of this node, for its host name in `cluster.listen`; for clients and servers."""

    key_file: str
    """PEM: its key."""

    ca_file: str
    """PEM: who issues the certificates of nodes, and of nothing else."""


class ClusterSettings(Section):
    """Brokers that stand in for each other; with `listen` nodes that serve together."""

    listen: Annotated[str, AfterValidator(_check_listen)] = ""
    """HOST:PORT at which other nodes reach this one; the shard K at PORT + K. Makes the broker a node."""

    node: str = ""
    """The name of this node, which no other has; by default that of its host."""

    secret_file: str = ""
    """What all nodes know, and nobody else."""

    tls: NodeTlsSettings | None = None
    """Encrypts links between nodes."""

    shards: Annotated[int, Field(ge=1, le=limits.SHARDS_MAX)] = 12
    """How many shards the first node makes; there will never be more or fewer."""

    client_address: Annotated[str, Field(max_length=1_024)] = ""
    """Where clients of MQTT 5 reach this node, as HOST or HOST:PORT: they are sent here from others."""

    lease_ms: Annotated[DurationMs, AfterValidator(_check_lease)] = Field(
        default=5_000, validation_alias="lease"
    )
    """For how long a broker may deliver and confirm after it has last renewed its lease on the storage, in
    ms; one that waits takes over after as much silence.
    """

    @property
    def node_name(self) -> str:
        """The name of this node."""
        return self.node or socket.gethostname()

    @property
    def address(self) -> tuple[str, int]:
        """The host and the first port at which other nodes reach this one."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @model_validator(mode="after")
    def _nodes_know_each_other(self) -> "ClusterSettings":
        if self.listen and not (self.secret_file or self.tls):
            raise ValueError("listen: needs a secret_file, or tls: anybody could be a node")
        if not self.listen and (self.node or self.secret_file or self.tls or self.client_address):
            raise ValueError("node, secret_file, tls and client_address are for nodes: they need listen")
        return self
