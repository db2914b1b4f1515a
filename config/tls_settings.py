"""Settings of TLS on a listener."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from config.field_types import Section


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
