"""Settings of who may come in: the `access` section, and the users file it names."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from config import limits, name_rules
from config.field_types import Count, DurationMs, PositiveDurationMs, Section
from config.quota_settings import QuotaSettings
from config.safe_urls import check_url, is_of_this_machine
from config.token_settings import OpenIdSettings, TokenSettings

_SCRAM: Final = re.compile(
    r"SCRAM-SHA-256\$[1-9][0-9]{0,6}:[A-Za-z0-9+/]{11,}={0,2}\$[A-Za-z0-9+/]{43}=:[A-Za-z0-9+/]{43}="
)
RABBITMQ_HASH: Final = re.compile(
    r"\$rabbitmq-(?P<algorithm>sha256|sha512)"
    r"\$(?P<salted>(?<=256\$)[A-Za-z0-9+/]{48}|(?<=512\$)[A-Za-z0-9+/]{91}=)"
)
"""The text form of a hash that a RabbitMQ made: base64 of four bytes of salt and the digest."""
_CERTIFICATE_NAMES: Final = ("cn", "dns", "uri", "email", "dn", "sha256")
USERNAME: Final = "{username}"
DN: Final = "{dn}"

Tag = Literal["administrator", "monitoring", "management", "policymaker"]


def _check_pattern(text: str) -> str:
    if len(text) > limits.ACCESS_PATTERN_CHARACTERS_MAX:
        raise ValueError(f"a pattern has at most {limits.ACCESS_PATTERN_CHARACTERS_MAX} characters")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


def _check_rule(text: str) -> str:
    access, _, topic_filter = text.partition(" ")
    if access not in ("read", "write", "readwrite"):
        raise ValueError("an ACL rule is read, write or readwrite, a space and an MQTT topic filter")
    name_rules.check_topic_filter(topic_filter)
    return text


def _check_filter(text: str) -> str:
    if text and not (text.startswith("(") and text.endswith(")")):
        raise ValueError("a filter stands in parentheses")
    return text


def check_user_name(name: str) -> str:
    """Give `name` back if a user may be called so, whoever vouches for the user; else raise ValueError."""
    size_bytes = len(name.encode("utf-8", "surrogatepass"))
    if not 1 <= size_bytes <= limits.USER_NAME_BYTES_MAX:
        raise ValueError(f"a user name has 1 to {limits.USER_NAME_BYTES_MAX} bytes")
    if not name.isprintable():
        raise ValueError("a user name has no control characters")
    return name


def _check_hash(text: str) -> str:
    if not (text.startswith("$argon2id$") or RABBITMQ_HASH.fullmatch(text)):
        raise ValueError("is no argon2id hash, nor one of RabbitMQ's; `sluicemq user passwd` sets one")
    return text


def _check_scram(text: str) -> str:
    if not _SCRAM.fullmatch(text):
        raise ValueError("is no SCRAM-SHA-256 verifier; `sluicemq user passwd --scram` sets one")
    return text


def _check_certificate_name(name: str) -> str:
    kind, _, rest = name.partition(":")
    if kind not in _CERTIFICATE_NAMES or not rest:
        kinds = ", ".join(f"{kind}:" for kind in _CERTIFICATE_NAMES)
        raise ValueError(f"the name of a certificate begins with one of {kinds}")
    return name


def _check_network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise ValueError(f"is no network, as 10.1.0.0/16: {error}") from None


CertificateName = Annotated[str, AfterValidator(_check_certificate_name)]
Network = Annotated[str, AfterValidator(_check_network)]
Pattern = Annotated[str, AfterValidator(_check_pattern)]
Rule = Annotated[str, AfterValidator(_check_rule)]
Filter = Annotated[str, AfterValidator(_check_filter)]
UserName = Annotated[str, AfterValidator(check_user_name)]


class TopicPermissionSettings(Section):
    """Which routing keys of an exchange; `{username}`, `{vhost}` and `{client_id}` are filled in."""

    exchange: str
    write: Pattern = ""
    read: Pattern = ""


class PermissionSettings(Section):
    """The rights in a virtual host. Regular expressions, found anywhere in a name; "" is nothing."""

    vhost: str = "/"
    """`*`: every virtual host that has no entry of its own."""
    configure: Pattern = ""
    write: Pattern = ""
    read: Pattern = ""
    groups: Pattern = ".*"
    """Which consumer groups of the queues that may be read."""
    topics: tuple[TopicPermissionSettings, ...] = ()
    acl: tuple[Rule, ...] = ()
    """MQTT topic filters that are allowed besides, such as `write devices/%c/#`."""


class UserSettings(QuotaSettings):
    """An account, and the quotas of its user."""

    unsupported_keys: ClassVar[Mapping[str, str]] = {"connections_max": "is called max_connections"}

    name: UserName
    password: Annotated[str, AfterValidator(_check_hash)] | None = Field(default=None, repr=False)
    """An argon2id hash, or one that a RabbitMQ made; without one there is no way in by password."""
    scram: Annotated[str, AfterValidator(_check_scram)] | None = Field(default=None, repr=False)
    """A SCRAM-SHA-256 verifier, for MQTT 5's enhanced authentication."""
    certificates: tuple[CertificateName, ...] = ()
    """Names of client certificates that are this user's, such as `cn:device-7` or `dns:device-7.example`."""
    tags: tuple[Tag, ...] = ()
    permissions: tuple[PermissionSettings, ...] = ()

    @model_validator(mode="after")
    def _vhosts_differ(self) -> "UserSettings":
        vhosts = [permission.vhost for permission in self.permissions]
        for vhost in vhosts:
            if vhosts.count(vhost) > 1:
                raise ValueError(f"user {self.name!r} has two permissions for virtual host {vhost!r}")
        return self


class UsersSettings(Section):
    """A users file."""

    users: tuple[UserSettings, ...] = ()

    @model_validator(mode="after")
    def _names_differ(self) -> "UsersSettings":
        if len(self.users) > limits.USERS_MAX:
            raise ValueError(f"at most {limits.USERS_MAX} users, not {len(self.users)}")
        seen = set()
        certificates: dict[str, str] = {}
        for user in self.users:
            for name in user.certificates:
                if certificates.setdefault(name, user.name) != user.name:
                    raise ValueError(f"certificate {name} is of {certificates[name]!r} and of {user.name!r}")
            if user.name in seen:
                raise ValueError(f"two users are named {user.name!r}")
            seen.add(user.name)
        return self


class HookSettings(Section):
    """A service that is asked by HTTP who somebody is."""

    url: str
    token_file: str = ""
    """The secret that the broker shows the service, as a bearer token."""
    timeout_ms: PositiveDurationMs = Field(default=2_000, validation_alias="timeout")
    cache_ms: DurationMs = Field(default=60_000, validation_alias="cache")
    cache_refused_ms: DurationMs = Field(default=5_000, validation_alias="cache_refused")

    @field_validator("url")
    @classmethod
    def _url_is_safe(cls, url: str) -> str:
        if not url:
            raise ValueError("must be a URL")
        return check_url(url)


class GroupSettings(Section):
    """What the members of a group may do."""

    group: str = ""
    """Its distinguished name; "": everybody who can log in."""
    tags: tuple[Tag, ...] = ()
    permissions: tuple[PermissionSettings, ...] = ()


class LdapSettings(Section):
    """A directory that is asked over LDAP."""

    servers: tuple[str, ...]
    """URLs, `ldap://` or `ldaps://`; the next one is asked where one does not answer."""
    start_tls: bool = False
    ca_file: str = ""
    """The authority of the servers' certificates, "": those the system knows."""
    user_dn: str = ""
    """The name that a user binds as, with `{username}` in it."""
    bind_dn: str = ""
    """Who searches for users and groups; "": nobody in particular, or the user who binds."""
    bind_password_file: str = ""
    user_base: str = ""
    """Where users are searched for, in place of `user_dn`."""
    user_filter: Filter = "(uid={username})"
    name_attribute: str = "uid"
    """The attribute of a user that is the name here; "": what the user typed."""
    group_attribute: str = "memberOf"
    """The attribute of a user with the names of groups; "": none."""
    group_base: str = ""
    """Where groups are searched for; "": nowhere."""
    group_filter: Filter = "(member={dn})"
    groups: tuple[GroupSettings, ...] = ()
    connections: Annotated[Count, Field(ge=1, le=limits.LDAP_CONNECTIONS_MAX)] = 8
    timeout_ms: PositiveDurationMs = Field(default=5_000, validation_alias="timeout")
    expires_ms: DurationMs = Field(default=0, validation_alias="expires")
    """How long a login lasts; 0: as long as the connection."""
    cache_ms: DurationMs = Field(default=60_000, validation_alias="cache")
    cache_refused_ms: DurationMs = Field(default=5_000, validation_alias="cache_refused")

    @field_validator("servers")
    @classmethod
    def _are_urls(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        if not 1 <= len(servers) <= limits.LDAP_SERVERS_MAX:
            raise ValueError(f"1 to {limits.LDAP_SERVERS_MAX} servers")
        for url in servers:
            parts = urlsplit(url)
            if parts.scheme not in ("ldap", "ldaps") or not parts.hostname or parts.path.strip("/"):
                raise ValueError("must be ldap:// or ldaps:// and a name, maybe with a port")
            if "@" in parts.netloc:
                raise ValueError("must not have a user or password in it")
            parts.port  # noqa: B018 - raises ValueError
        return servers

    @model_validator(mode="after")
    def _passwords_are_safe(self) -> Self:
        for url in self.servers:
            is_safe = url.startswith("ldaps:") or self.start_tls or is_of_this_machine(url)
            if not is_safe:
                raise ValueError(f"passwords go in the clear to {url}: use ldaps://, or start_tls")
            if url.startswith("ldaps:") and self.start_tls:
                raise ValueError(f"start_tls is for ldap://, and {url} has TLS already")
        return self

    @model_validator(mode="after")
    def _users_are_found(self) -> Self:
        if bool(self.user_dn) == bool(self.user_base):
            raise ValueError("needs user_dn, or user_base to search for users")
        if self.user_dn and USERNAME not in self.user_dn:
            raise ValueError(f"user_dn has no {USERNAME}")
        if self.user_base and USERNAME not in self.user_filter:
            raise ValueError(f"user_filter has no {USERNAME}")
        if self.group_base and DN not in self.group_filter and USERNAME not in self.group_filter:
            raise ValueError(f"group_filter has no {DN} and no {USERNAME}")
        if bool(self.bind_dn) != bool(self.bind_password_file):
            raise ValueError("bind_dn and bind_password_file belong together")
        return self


class FlappingSettings(Section):
    """When a client identifier of MQTT is banned for a while since it connects too often."""

    connects: Count = Field(default=0, ge=0)
    """How many connections it may make in a window; 0: any number."""
    window_ms: PositiveDurationMs = Field(default=60_000, validation_alias="window")
    ban_ms: PositiveDurationMs = Field(default=300_000, validation_alias="ban")


class AccessSettings(Section):
    """The rules of login."""

    users_file: str = ""
    """Where users stand; without one there is one, guest with password guest, on this machine only."""
    anonymous: Literal["never", "loopback", "always"] = "loopback"
    """From where one may come in without saying who one is."""
    anonymous_permissions: tuple[PermissionSettings, ...] = (
        PermissionSettings(vhost="*", configure=".*", write=".*", read=".*"),
    )

    quotas: QuotaSettings = QuotaSettings()
    """Of each user, wherever known, as far as the account says nothing else."""
    connections_per_address: Count = Field(default=0, ge=0)
    """How many connections one address may have; 0: as many as there is room for."""
    connects_per_second: Count = Field(default=0, ge=0)
    """How many connections one address may make in a second; 0: any number."""
    flapping: FlappingSettings = FlappingSettings()
    webhook_networks: tuple[Network, ...] = Field(default=(), max_length=limits.WEBHOOK_NETWORKS_MAX)
    """Networks without public addresses that webhooks may post to."""
    jwt: TokenSettings | None = None
    openid: OpenIdSettings | None = None
    ldap: LdapSettings | None = None
    http: HookSettings | None = None
    order: tuple[Literal["users", "jwt", "ldap", "http"], ...] = ("users", "jwt", "ldap", "http")
    """The sources that are asked about a password, one after the other, until one knows it."""
    certificate_user: Literal["none", "cn", "dns", "uri", "email", "dn"] = "none"
    """Which name of a client certificate is the name of the user; users may name certificates, too."""

    @field_validator("order")
    @classmethod
    def _each_once(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(order)) != len(order):
            raise ValueError("names one of them twice")
        return order

    @model_validator(mode="after")
    def _strangers_have_permissions(self) -> "AccessSettings":
        if self.anonymous == "always" and "anonymous_permissions" not in self.model_fields_set:
            raise ValueError(
                "anonymous: always lets everybody in; say by anonymous_permissions what they may do"
            )
        return self

    @model_validator(mode="after")
    def _people_come_from_the_issuer(self) -> "AccessSettings":
        if self.openid is not None:
            if self.jwt is None or not self.jwt.issuer or "jwt" not in self.order:
                raise ValueError("openid: needs jwt, with an issuer, and in the order")
            check_url(self.jwt.issuer)
        return self
