"""The settings of a broker, as data. Defaults here are those of `config/default.yaml`."""

import ipaddress
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from config import limits, name_rules
from config.access_settings import AccessSettings
from config.cluster_settings import ClusterSettings
from config.field_types import Count, DurationMs, PositiveDurationMs, Section, SizeBytes
from config.mqtt_settings import MqttSettings
from config.name_rules import DEFAULT_VHOST
from config.queue_settings import QueueSettings
from config.quota_settings import QuotaSettings
from config.safe_urls import check_url


def _as_text(version: Any) -> Any:
    return str(version) if isinstance(version, float) else version  # as YAML has it without quotes


class TlsNameSettings(Section):
    """A certificate for clients who ask for another name (SNI); `*.example.org` stands for one level."""

    name: str
    cert: str
    key: str


class TlsSettings(Section):
    """Certificates, as PEM files."""

    cert: str
    """The server's certificate, and behind it those between it and a root."""
    key: str
    client_ca: str = ""
    """The authority of client certificates; without it none are asked for."""
    client_certificate: Literal["required", "optional"] = "required"
    """Whether a client without one may come in, by password."""
    crl: str = ""
    """Client certificates that were revoked, signed by the authority."""
    min_version: Annotated[Literal["1.2", "1.3"], BeforeValidator(_as_text)] = "1.2"
    plain: bool = False
    """Whether clients without TLS may use the port, too."""
    names: tuple[TlsNameSettings, ...] = ()

    @model_validator(mode="after")
    def _revoked_by_somebody(self) -> "TlsSettings":
        if self.crl and not self.client_ca:
            raise ValueError("crl is about client certificates, which are not asked for without client_ca")
        return self


class EncryptionKeySettings(Section):
    """A key that encrypts what is stored. It lies in a file; or it is made once, and kept in the storage as
    a command or a service wrapped it.
    """

    id: Annotated[str, AfterValidator(name_rules.check_key_id)]
    file: str = ""
    """64 hexadecimal digits."""
    command: tuple[str, ...] = ()
    """A program and its arguments, which wraps and unwraps the key."""
    url: Annotated[str, AfterValidator(check_url)] = ""
    """The service that does."""
    token_file: str = ""
    """The secret that the broker shows the service, as a bearer token."""

    @model_validator(mode="after")
    def _has_one_source(self) -> "EncryptionKeySettings":
        if sum(map(bool, (self.file, self.command, self.url))) != 1:
            raise ValueError("has one of file, command and url")
        if self.token_file and not self.url:
            raise ValueError("token_file is for the service that url names")
        return self


class EncryptionSettings(Section):
    """Encryption of what is stored."""

    keys: Annotated[
        tuple[EncryptionKeySettings, ...], Field(min_length=1, max_length=limits.SEALING_KEYS_MAX)
    ]
    """The first encrypts; the others are for what was encrypted before."""

    @field_validator("keys")
    @classmethod
    def _ids_differ(cls, keys: tuple[EncryptionKeySettings, ...]) -> tuple[EncryptionKeySettings, ...]:
        for _, key_id, first_index in duplicate_names([key.id for key in keys]):
            raise ValueError(f"{key_id!r} is already the ID of keys[{first_index}]")
        return keys


class StorageSettings(Section):
    """Where messages are kept."""

    url: Annotated[str, AfterValidator(name_rules.check_storage_url)] = "./data"
    """A directory, `memory:`, or `s3://bucket/prefix` (also gs, az)."""
    log_url: Annotated[str, AfterValidator(name_rules.check_log_url)] = ""
    """A bucket for the log of a database in an object store, as `s3://bucket`; empty: where it is."""
    sync: Literal["always", "os"] = "always"
    """On a local disk: `always` confirms after fsync, `os` leaves the writing to the kernel."""
    instance_id: Annotated[str, AfterValidator(name_rules.check_instance_id)] = ""
    """Names the broker in the keys of its logs, from the first message on; empty: a generated one."""
    journal: Literal["auto", "local"] = "auto"
    """`local`: messages for an object store are confirmed by a journal on a local disk."""
    journal_directory: str = Field(default="./journal", min_length=1)
    """Where that journal lies."""
    encryption: EncryptionSettings | None = None
    """None: what is stored is not encrypted."""

    @property
    def is_remote(self) -> bool:
        """Whether messages are kept in an object store."""
        return "://" in self.url

    @model_validator(mode="after")
    def _journal_stands_before_an_object_store(self) -> "StorageSettings":
        if self.journal == "local" and not self.is_remote:
            raise ValueError(
                "journal: local is for object stores; a local disk has its journal in the storage"
            )
        if self.log_url and not self.is_remote:
            raise ValueError("log_url is for object stores; a local disk has its log in the storage")
        if self.log_url and self.journal == "local":
            raise ValueError(
                "log_url is nothing for journal: local, which confirms before the log is written"
            )
        return self


class ListenerSettings(Section):
    """One listening address."""

    bind: Annotated[str, AfterValidator(name_rules.check_bind)] = "127.0.0.1"
    port: Count = Field(default=0, ge=0, le=65_535)
    """0: any free port."""

    @property
    def unix_path(self) -> str:
        """The Unix socket that it listens at, too; "": none."""
        return ""

    @property
    def is_proxied(self) -> bool:
        """Whether connections begin with a header of the PROXY protocol."""
        return False


class ClientListenerSettings(ListenerSettings):
    """A listener for clients of a messaging protocol."""

    proxy_protocol: bool = False
    """Whether a proxy says, by the PROXY protocol, where each connection comes from. Then all must."""
    unix_socket: Annotated[str, Field(max_length=100)] = ""
    """The path of a Unix socket to listen at, besides the port."""

    @property
    def unix_path(self) -> str:
        return self.unix_socket

    @property
    def is_proxied(self) -> bool:
        return self.proxy_protocol


class AnyMqttListenerSettings(ClientListenerSettings):
    """A listener for MQTT, whatever is below it."""

    vhost: str = DEFAULT_VHOST
    """The virtual host its clients are in."""


class MqttListenerSettings(AnyMqttListenerSettings):
    """MQTT 3.1.1 and 5 on one port."""

    port: Count = Field(default=1883, ge=0, le=65_535)


class AmqpListenerSettings(ClientListenerSettings):
    """AMQP 0.9.1 and 1.0 on one port."""

    port: Count = Field(default=5672, ge=0, le=65_535)


class MqttsListenerSettings(AnyMqttListenerSettings):
    """MQTT over TLS."""

    port: Count = Field(default=8883, ge=0, le=65_535)
    tls: TlsSettings


UrlPath = Annotated[str, Field(pattern=r"^/[!-~]*$", max_length=255)]
Origins = tuple[Annotated[str, Field(max_length=255)], ...]
"""Origins of pages that may connect beside those of the broker's own host; `*`: any."""


class MqttWsListenerSettings(AnyMqttListenerSettings):
    """MQTT over WebSocket."""

    port: Count = Field(default=8083, ge=0, le=65_535)
    path: UrlPath = "/mqtt"
    origins: Origins = ()


class MqttWssListenerSettings(MqttWsListenerSettings):
    """MQTT over WebSocket over TLS."""

    port: Count = Field(default=8084, ge=0, le=65_535)
    tls: TlsSettings


class AmqpsListenerSettings(ClientListenerSettings):
    """AMQP over TLS."""

    port: Count = Field(default=5671, ge=0, le=65_535)
    tls: TlsSettings


class AmqpWsListenerSettings(ClientListenerSettings):
    """AMQP over WebSocket."""

    port: Count = Field(default=15_678, ge=0, le=65_535)
    path: UrlPath = "/ws"
    origins: Origins = ()


class AmqpWssListenerSettings(AmqpWsListenerSettings):
    """AMQP over WebSocket over TLS."""

    port: Count = Field(default=15_677, ge=0, le=65_535)
    tls: TlsSettings


class HttpListenerSettings(ListenerSettings):
    """HTTP: the page, metrics, administration."""

    port: Count = Field(default=15672, ge=0, le=65_535)

    @property
    def is_port_wanted(self) -> bool:
        """Whether somebody chose the port; where nobody did the broker also starts without the listener."""
        return "port" in self.model_fields_set


class HttpsListenerSettings(ListenerSettings):
    """HTTP over TLS."""

    port: Count = Field(default=15671, ge=0, le=65_535)
    tls: TlsSettings


class MqcoreListenerSettings(ListenerSettings):
    """MQ-Core: publishing and consuming over HTTP."""

    port: Count = Field(default=15673, ge=0, le=65_535)


class MqcoresListenerSettings(ListenerSettings):
    """MQ-Core over TLS."""

    port: Count = Field(default=15674, ge=0, le=65_535)
    tls: TlsSettings


class ListenersSettings(Section):
    """The listeners that open; None does not."""

    mqtt: MqttListenerSettings | None = None
    mqtts: MqttsListenerSettings | None = None
    mqtt_ws: MqttWsListenerSettings | None = None
    mqtt_wss: MqttWssListenerSettings | None = None
    amqp: AmqpListenerSettings | None = None
    amqps: AmqpsListenerSettings | None = None
    amqp_ws: AmqpWsListenerSettings | None = None
    amqp_wss: AmqpWssListenerSettings | None = None
    http: HttpListenerSettings | None = None
    https: HttpsListenerSettings | None = None
    mqcore: MqcoreListenerSettings | None = None
    mqcores: MqcoresListenerSettings | None = None

    def opened(self) -> dict[str, ListenerSettings]:
        """Return the listeners that are set, by name, in the order of the documentation."""
        return {name: listener for name, listener in self if listener is not None}

    def with_tls(self) -> dict[str, TlsSettings]:
        """Return the TLS settings of those that have some, by name."""
        found = {name: getattr(listener, "tls", None) for name, listener in self.opened().items()}
        return {name: tls for name, tls in found.items() if isinstance(tls, TlsSettings)}

    @model_validator(mode="after")
    def _addresses_differ(self) -> "ListenersSettings":
        seen: list[tuple[str, ListenerSettings]] = []
        for name, listener in self.opened().items():
            for other_name, other in seen:
                if listener.port == other.port != 0 and _addresses_overlap(listener.bind, other.bind):
                    raise ValueError(f"{other_name} and {name} both take port {listener.port}")
            seen.append((name, listener))
        return self


def _check_queues(queues: tuple[QueueSettings, ...]) -> tuple[QueueSettings, ...]:
    if len(queues) > limits.QUEUES_MAX:
        raise ValueError(f"at most {limits.QUEUES_MAX} queues, not {len(queues)}")
    for _, name, _ in duplicate_names([queue.name for queue in queues]):
        raise PydanticCustomError("duplicate_queue", "two queues are named {name}", {"name": name})
    return queues


QueueType = Literal["classic", "quorum", "stream"]


class VhostTraits(QuotaSettings):
    """What there is to say of a virtual host beside what is in it."""

    name: Annotated[str, AfterValidator(name_rules.check_vhost_name)]
    description: Annotated[str, Field(max_length=limits.VHOST_DESCRIPTION_CHARACTERS_MAX)] = ""
    tags: Annotated[tuple[str, ...], Field(max_length=limits.VHOST_TAGS_MAX)] = ()
    default_queue_type: QueueType = "classic"
    """Of queues that AMQP clients declare without `x-queue-type`."""
    protected_from_deletion: bool = False
    """It is not deleted before this is taken back."""


class VhostSettings(VhostTraits):
    """A virtual host: queues, exchanges and topics of its own."""

    queues: Annotated[tuple[QueueSettings, ...], AfterValidator(_check_queues)] = ()
    """Queues that are in it from the start."""


class DefaultPolicySettings(Section):
    """A policy that virtual hosts begin with which are made while the broker runs."""

    name: Annotated[str, Field(min_length=1)]
    vhost_pattern: str = ""
    """A regular expression looked for in names of virtual hosts: which of them begin with it."""
    pattern: str
    apply_to: str = "all"
    priority: int = 0
    operator: bool = False
    definition: Annotated[dict[str, int | str], Field(min_length=1)]

    @field_validator("vhost_pattern")
    @classmethod
    def _is_regular_expression(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from None
        return value


class QueueManagerSettings(Section):
    """The settings of all queues."""

    auto_create: bool = True
    """Publishing or subscribing to a queue that does not exist creates an ephemeral one."""
    visibility_timeout_ms: PositiveDurationMs = Field(default=30_000, validation_alias="visibility_timeout")
    """Lease of a delivery in ms, for queues that set none."""
    consumer_timeout_ms: PositiveDurationMs = Field(default=30 * 60_000, validation_alias="consumer_timeout")
    """Longest an AMQP consumer may hold one message unsettled, in ms; then that message returns."""
    generated_group_expires_ms: DurationMs = Field(
        default=limits.GENERATED_GROUP_EXPIRES_MS, validation_alias="generated_group_expires"
    )
    """A consumer group with a name that a library made up goes after so long without use, in ms; 0: never."""
    ephemeral_expires_ms: PositiveDurationMs = Field(default=5 * 60_000, validation_alias="ephemeral_expires")
    """An ephemeral queue without consumers goes after this, in ms."""
    auto_commit_interval_ms: DurationMs = Field(default=5_000, validation_alias="auto_commit_interval")
    """How often the offsets of stream groups are written, in ms; 0: at once."""
    cache_bytes: SizeBytes = 64 * limits.MIB
    """Payload bytes kept in memory for waiting messages; the rest is read back from storage."""


class LogSettings(Section):
    """The settings of the log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class TelemetrySettings(Section):
    """Traces, sent to a collector of OpenTelemetry."""

    otlp: Annotated[str, AfterValidator(name_rules.check_collector_url)] = ""
    """The collector's URL for OTLP over HTTP, as http://localhost:4318; empty: no traces."""
    sample: float = Field(default=1.0, ge=0, le=1)
    """The share of the messages marked as sampled by their publishers that is traced."""


def _read_workers(value: Any) -> Any:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)  # of a variable
    if value != "auto" and (type(value) is not int or not 1 <= value <= limits.WORKERS_MAX):
        raise ValueError(f"must be auto, or a number from 1 to {limits.WORKERS_MAX}")
    return value


class Settings(Section):
    """Everything a broker is told; `Settings()` is the default configuration with its listeners open."""

    workers: Annotated[int | Literal["auto"], BeforeValidator(_read_workers)] = 1
    """The processes that share the work; `auto`: one for each core there is."""
    storage: StorageSettings = StorageSettings()
    listeners: ListenersSettings = ListenersSettings(
        mqtt=MqttListenerSettings(), amqp=AmqpListenerSettings(), http=HttpListenerSettings()
    )
    mqtt: MqttSettings = MqttSettings()
    queue_manager: QueueManagerSettings = QueueManagerSettings()
    cluster: ClusterSettings | None = None
    """None: one broker that has its storage for itself, or a standby that takes over slowly."""
    vhosts: tuple[VhostSettings, ...] = ()
    default_policies: Annotated[
        tuple[DefaultPolicySettings, ...], Field(max_length=limits.POLICIES_PER_VHOST_MAX)
    ] = ()
    queues: Annotated[tuple[QueueSettings, ...], AfterValidator(_check_queues)] = ()
    access: AccessSettings = AccessSettings()
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @field_validator("vhosts")
    @classmethod
    def _vhosts_differ(cls, value: tuple[VhostSettings, ...]) -> tuple[VhostSettings, ...]:
        if len(value) > limits.VHOSTS_MAX:
            raise ValueError(f"at most {limits.VHOSTS_MAX} virtual hosts, not {len(value)}")
        for _, name, _ in duplicate_names([vhost.name for vhost in value]):
            raise ValueError(f"two virtual hosts are named {name}")
        return value

    @model_validator(mode="after")
    def _cluster_is_on_an_object_store(self) -> "Settings":
        if self.cluster is not None and not self.storage.is_remote:
            raise ValueError(f"cluster: needs a storage.url in an object store, not {self.storage.url}")
        if self.cluster is not None and self.storage.journal == "local":
            raise ValueError(
                "cluster: another broker cannot take over what storage.journal: local confirms, on a disk of"
                " this machine"
            )
        return self

    @model_validator(mode="after")
    def _cluster_is_of_single_workers(self) -> "Settings":
        if self.cluster is not None and self.workers != 1:
            raise ValueError(
                f"cluster: works with workers: 1 only, not {self.workers}: a lease is on one storage, and"
                " each worker has one; a node (cluster.listen) has a worker for each of its shards"
            )
        return self

    @model_validator(mode="after")
    def _listeners_and_bridges_lead_somewhere(self) -> "Settings":
        known = {DEFAULT_VHOST, *(vhost.name for vhost in self.vhosts)}
        for name, listener in self.listeners.opened().items():
            if isinstance(listener, AnyMqttListenerSettings) and listener.vhost not in known:
                raise ValueError(f"listener {name} leads to the virtual host {listener.vhost}, which is none")
        for bridge in self.mqtt.bridges:
            if bridge.vhost not in known:
                raise ValueError(
                    f"bridge {bridge.name} leads to the virtual host {bridge.vhost}, which is none"
                )
        return self

    def visibility_timeout_ms(self, queue: QueueSettings) -> int:
        """Return the lease of a delivery from `queue`, in ms: its own, else the queue manager's."""
        return queue.visibility_timeout_ms or self.queue_manager.visibility_timeout_ms


def duplicate_names(queue_names: Sequence[object]) -> list[tuple[int, str, int]]:
    """List (index, name, index of the first with that name) for every name that was there before."""
    first_index: dict[str, int] = {}
    duplicates = []
    for index, name in enumerate(queue_names):
        if isinstance(name, str) and first_index.setdefault(name, index) != index:
            duplicates.append((index, name, first_index[name]))
    return duplicates


def _addresses_overlap(bind: str, other_bind: str) -> bool:
    """Return whether one socket on each, with one port, would collide; a wildcard takes its whole family."""
    binds = {"127.0.0.1" if name == "localhost" else name for name in (bind, other_bind)}
    if len(binds) == 1 or "::" in binds:  # :: takes IPv4 too where the system maps it
        return True
    if "0.0.0.0" not in binds:  # noqa: S104 - compared, not bound
        return False
    other = next(name for name in binds if name != "0.0.0.0")  # noqa: S104
    try:
        return ipaddress.ip_address(other).version == 4
    except ValueError:
        return True  # a host name: may well be IPv4
