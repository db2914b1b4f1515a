"""The options of a read or write: plain data, pickled to executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
IDEMPOTENT: Final = "idempotent"

COMMITTED: Final = "committed"
VISIBLE: Final = "visible"

SLUICE_COLUMNS: Final = "sluice"
KAFKA_COLUMNS: Final = "kafka"

EARLIEST: Final = "earliest"
LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """`confirm_timeout_s` bounds every wait for the broker, `connect_timeout_s` all tries to connect.
    `others`: where else to try, after `host` and `port`.
    """

    host: str = "localhost"
    port: int = 5672
    vhost: str = "/"
    username: str = "guest"
    password: str = "guest"
    tls: bool = False
    ca_file: str = ""
    connect_timeout_s: float = 30.0
    confirm_timeout_s: float = 60.0
    others: tuple[tuple[str, int], ...] = ()

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Where the broker may be, in the order in which it is tried."""
        return ((self.host, self.port), *self.others)


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Where rows go and how surely. `queue` "": by exchange and routing key. `routing_key` None: that of the
    row. `producer_id` "" and `epoch` None: found out from the query or job. `waits_visible`: a commit is over
    when all of its rows can be consumed.
    """

    connection: ConnectionSettings
    delivery: str = EXACTLY_ONCE
    queue: str = ""
    exchange: str = ""
    routing_key: str | None = None
    producer_id: str = ""
    epoch: int | None = None
    sink_name: str = ""
    confirm_window: int = 2_000
    mandatory: bool = True
    waits_visible: bool = False


@dataclass(frozen=True, slots=True)
class ListSettings:
    """Which messages to list: those of `queues` in a `state`, for `group` (None: the default or only one)."""

    connection: ConnectionSettings
    queues: tuple[str, ...]
    state: str
    group: str | None = None
    include_headers: bool = True


@dataclass(frozen=True, slots=True)
class ClaimSettings:
    """The settings of a work queue that is read by claims. `group` "": the default one; `lease_ms` 0: as the
    queue has it; `selector` "": every message.
    """

    connection: ConnectionSettings
    queue: str
    group: str = ""
    messages_per_trigger: int = 10_000
    bytes_per_trigger: int = 32 << 20
    messages_per_partition: int = 2_500
    lease_ms: int = 0
    selector: str = ""
    include_headers: bool = True
    columns: str = SLUICE_COLUMNS


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of a read. Offsets by stream; a missing one is that of `starting` or `ending`: "earliest",
    "latest".

    Times are ms since 1970; -1: not by time. `group` "": nobody is told how far the query is. `columns`: the
    bridge's own, or those of Spark's Kafka source. `selector`: which messages the broker sends; "": all.
    """

    connection: ConnectionSettings
    queues: tuple[str, ...]
    starting: str = EARLIEST
    starting_offsets: tuple[tuple[str, int], ...] = ()
    ending_offsets: tuple[tuple[str, int], ...] = ()
    offsets_per_partition: int = 50_000
    fail_on_data_loss: bool = True
    group: str = ""
    include_headers: bool = True
    offsets_per_trigger: int = 0
    starting_ms: int = -1
    ending_ms: int = -1
    columns: str = SLUICE_COLUMNS
    selector: str = ""
