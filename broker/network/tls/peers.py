"""Which names the certificate of a client has."""

from __future__ import annotations

import hashlib
import ssl
from typing import Any, Final

_SUBJECT_NAMES: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
}
_ALTERNATIVES: Final = {"DNS": "dns", "URI": "uri", "email": "email"}


def certificate_names(connection: ssl.SSLObject | None) -> tuple[str, ...]:
    """Return the names of a client's certificate that was verified, as users have them: `cn:`, `dns:`,
    `uri:`, `email:`, `dn:` (as RFC 4514 writes it) and `sha256:`. None where there is no such certificate.
    """
    found: Any = None if connection is None else connection.getpeercert()
    if connection is None or not found:
        return ()
    names: list[str] = []
    parts: list[str] = []
    for relative in found.get("subject", ()):
        for kind, value in relative:
            if kind == "commonName":
                names.append(f"cn:{value}")
            parts.append(f"{_SUBJECT_NAMES.get(kind, kind)}={_escaped(value)}")
    names.append("dn:" + ",".join(reversed(parts)))
    for kind, value in found.get("subjectAltName", ()):
        if kind in _ALTERNATIVES:
            names.append(f"{_ALTERNATIVES[kind]}:{value}")
    whole = connection.getpeercert(binary_form=True)
    if whole is not None:
        names.append("sha256:" + hashlib.sha256(whole).hexdigest())
    return tuple(names)


def _escaped(value: str) -> str:
    return "".join("\\" + character if character in ',+"\\<>;=' else character for character in value)
