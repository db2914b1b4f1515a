"""Settings of JSON web tokens."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from config.field_types import DurationMs, PositiveDurationMs, Section
from config.safe_urls import check_url

Algorithm = Literal[
    "HS256",
    "HS384",
    "HS512",
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
]


def _split(value: Any) -> Any:
    return tuple(value.split()) if isinstance(value, str) else value


Scopes = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""A list, or a text with spaces in between."""


class ResourceServerSettings(Section):
    """A further name of this broker in scopes. What is None is as `access.jwt` has it."""

    id: str
    scope_prefix: str | None = None
    """None: that of `access.jwt` if it has one, or the name and a dot."""
    additional_scopes_key: str | None = None
    scope_aliases: Mapping[str, Scopes] | None = None
    preferred_username_claims: tuple[str, ...] | None = None


class TokenSettings(Section):
    """JSON web tokens, which come as passwords."""

    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")
    keys_file: str = ""
    """Public keys: PEM, or a JSON web key set."""
    jwks_url: str = ""
    """Where a key set is, over https (or http on this machine)."""
    jwks_refresh_ms: PositiveDurationMs = Field(default=300_000, validation_alias="jwks_refresh")
    secret_file: str = ""
    """A secret that the broker shares with whoever signs, for HS algorithms."""
    issuer: str = ""
    audience: str = ""
    resource_server_id: str = ""
    """What scopes call this broker; with it they are taken, as RabbitMQ takes them."""
    scope_prefix: str | None = None
    """What its scopes begin with; None: `resource_server_id` and a dot."""
    additional_scopes_key: str = ""
    """Further claims with scopes, by dotted paths with spaces in between."""
    scope_aliases: Mapping[str, Scopes] = Field(default_factory=dict)
    """Scopes that other names, such as roles, stand for."""
    preferred_username_claims: tuple[str, ...] = ()
    """Claims that are looked at for the name of the user before `user_claim`."""
    resource_servers: tuple[ResourceServerSettings, ...] = ()
    """Further names of this broker; the one in a token's `aud` says how its scopes are read."""
    verify_aud: bool = True
    """Whether `aud` has to hold `resource_server_id`, where no `audience` is given."""
    leeway_ms: DurationMs = Field(default=10_000, validation_alias="leeway")
    user_claim: str = "sub"
    permissions_claim: str = "sluicemq.permissions"
    tags_claim: str = "sluicemq.tags"

    @field_validator("jwks_url")
    @classmethod
    def _url_is_safe(cls, url: str) -> str:
        return check_url(url)

    @model_validator(mode="after")
    def _keys_are_there(self) -> "TokenSettings":
        if not (self.keys_file or self.jwks_url or self.secret_file or self.issuer):
            raise ValueError("tokens need keys_file, jwks_url or secret_file, or an issuer that tells")
        if self.is_discovered:
            check_url(self.issuer)
        return self

    @model_validator(mode="after")
    def _scopes_are_for_somebody(self) -> "TokenSettings":
        if not self.resource_server_id:
            for key in ("scope_prefix", "additional_scopes_key", "scope_aliases", "resource_servers"):
                if key in self.model_fields_set:
                    raise ValueError(f"{key} says nothing without resource_server_id")
        names = [self.resource_server_id, *(server.id for server in self.resource_servers)]
        if len(set(names)) < len(names) or "" in names[1:]:
            raise ValueError("resource_servers: each has an id of its own")
        return self

    @property
    def is_discovered(self) -> bool:
        """Whether the issuer tells where its keys are (OpenID Connect Discovery 1.0)."""
        return not (self.keys_file or self.jwks_url or self.secret_file)

    @property
    def prefix(self) -> str:
        """What the scopes of this broker begin with."""
        return f"{self.resource_server_id}." if self.scope_prefix is None else self.scope_prefix

    def by_resource_server(self) -> "Mapping[str, TokenSettings]":
        """Return the settings for each name that a token may be given for."""
        found = {self.resource_server_id: self} if self.resource_server_id else {}
        for server in self.resource_servers:
            own = server.model_dump(exclude_none=True, exclude={"id"})
            found[server.id] = self.model_copy(update={"resource_server_id": server.id, **own})
        return found


class OpenIdSettings(Section):
    """Logins to the pages by OpenID Connect, at the issuer of the tokens."""

    client_id: str
    client_secret_file: str = ""
    """The secret of this broker at the issuer; without one it shows only that it began the login."""
    scopes: Scopes = ("openid",)
    """Which scopes the issuer is asked for."""
    rights_from: Literal["access_token", "id_token"] = "access_token"
    """The token that says what its user may do."""
    url: str = ""
    """Where browsers find the pages, as the issuer knows it; "": where the one that logs in found them."""

    @field_validator("scopes")
    @classmethod
    def _ask_for_an_id_token(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in scopes:
            raise ValueError("must have openid among them")
        return scopes

    @field_validator("url")
    @classmethod
    def _url_is_safe(cls, url: str) -> str:
        return check_url(url).removesuffix("/")
