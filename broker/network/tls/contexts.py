"""The TLS context of a listener, made of its settings; made anew when certificates change."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

from config.settings import TlsSettings
from config.settings_loader import ConfigError

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: forward secrecy and authenticated encryption only; those of 1.3 all are so."""
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TlsContexts:
    """The contexts of a broker's listeners, by name. A connection keeps the one it began with."""

    def __init__(self, settings: Mapping[str, TlsSettings]) -> None:
        """Make the contexts. Raises ConfigError for a certificate, key or authority that cannot be used."""
        self._contexts = _contexts_of(settings)
        self._taking_plain = _taking_plain(settings)

    def takes_plain(self, listener: str) -> bool:
        """Return whether clients without TLS may use its port."""
        return listener in self._taking_plain

    def get(self, listener: str) -> ssl.SSLContext | None:
        """Return the context of a listener, None: it has no TLS."""
        return self._contexts.get(listener)

    def take(self, others: TlsContexts) -> None:
        """Use those of `others` for connections to come."""
        self._contexts = others._contexts
        self._taking_plain = others._taking_plain


def make_context(listener: str, settings: TlsSettings) -> ssl.SSLContext:
    """Make a server's context; raises ConfigError."""
    context = _context(listener, settings, settings.cert, settings.key)
    others = {other.name: _context(listener, settings, other.cert, other.key) for other in settings.names}
    if others:
        context.sni_callback = _Chooser(others)
    return context


def _context(listener: str, settings: TlsSettings, cert: str, key: str) -> ssl.SSLContext:
    """Make one that shows this certificate, and is as strict as the listener is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _load_pair(context, listener, cert, key)
    if settings.client_ca:
        _load_authorities(context, listener, settings)
    return context


class _Chooser:
    """Has the certificate shown that is for the name a client asks for [RFC 6066, section 3]."""

    def __init__(self, contexts: Mapping[str, ssl.SSLContext]) -> None:
        self._contexts = contexts

    def __call__(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        found = self._contexts.get(name.lower()) if name else None
        if name and found is None:
            found = self._contexts.get("*." + name.lower().partition(".")[2])
        if found is not None:
            connection.context = found


def _contexts_of(settings: Mapping[str, TlsSettings]) -> dict[str, ssl.SSLContext]:
    problems: list[str] = []
    contexts = {}
    for listener, tls in settings.items():
        try:
            contexts[listener] = make_context(listener, tls)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return contexts


def _taking_plain(settings: Mapping[str, TlsSettings]) -> frozenset[str]:
    return frozenset(listener for listener, tls in settings.items() if tls.plain)


def _load_pair(context: ssl.SSLContext, listener: str, cert: str, key: str) -> None:
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise _problem(listener, f"{cert} with key {key}", error) from None


def _load_authorities(context: ssl.SSLContext, listener: str, settings: TlsSettings) -> None:
    try:
        context.load_verify_locations(settings.client_ca)
        if settings.crl:
            context.load_verify_locations(settings.crl)
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    except (OSError, ValueError) as error:
        raise _problem(listener, settings.crl or settings.client_ca, error) from None
    is_required = settings.client_certificate == "required"
    context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL


def _problem(listener: str, files: str, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
    return ConfigError([f"listeners.{listener}.tls: {files}: {reason}"])


def _no_password() -> str:
    """Refuse a key with a password, which would have the broker ask for it at the terminal."""
    raise ValueError("the key has a password, which nobody could type at a start")
