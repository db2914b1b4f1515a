"""Certificates for trying out: an authority's, a server's, clients'."""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAYS: Final = 365
_CLOCKS_DIFFER: Final = datetime.timedelta(hours=1)

Key = ec.EllipticCurvePrivateKey


class Authority(NamedTuple):
    """A certificate authority: its key and certificate."""

    key: Key
    certificate: x509.Certificate

    @classmethod
    def made(cls, name: str = "SluiceMQ test authority") -> Authority:
        """Make a new one."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name)
        builder = _builder(subject, subject, key, _DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = (),
        *,
        is_server: bool,
        is_client: bool | None = None,
        days: int = _DAYS,
    ) -> tuple[Key, x509.Certificate]:
        """Make a key and a certificate for it; `hosts` are names and IP addresses. Without `is_client` it is
        for clients unless it is for servers. Negative days: it has ended.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(name), self.certificate.subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH] if is_server else []
        if is_client or (is_client is None and not is_server):
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return key, builder.sign(self.key, hashes.SHA256())


def make_server(directory: Path, hosts: Sequence[str]) -> None:
    """Write `ca.crt`, `ca.key`, `server.crt` and `server.key`. Raises OSError, also where one is."""
    authority = Authority.made()
    key, certificate = authority.issue(hosts[0], hosts, is_server=True)
    directory.mkdir(parents=True, exist_ok=True)
    names = ("ca.crt", "ca.key", "server.crt", "server.key")
    for name in names:
        if (directory / name).exists():
            raise FileExistsError(f"{directory / name} is there already")
    write_pair(directory, "ca", authority.key, authority.certificate)
    write_pair(directory, "server", key, certificate)


def make_client(directory: Path, name: str) -> None:
    """Write `NAME.crt` and `NAME.key` of the authority in the directory. Raises OSError, ValueError."""
    found = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), None)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{directory / 'ca.key'} is no key that `sluicemq tls init` made")
    authority = Authority(found, x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes()))
    key, certificate = authority.issue(name, is_server=False)
    write_pair(directory, name, key, certificate)


def write_pair(directory: Path, name: str, key: Key, certificate: x509.Certificate) -> None:
    """Write a certificate, and its key for the owner only."""
    (directory / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor = os.open(directory / f"{name}.key", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)


def own_hosts() -> list[str]:
    """Return the names and addresses by which this machine's own clients call it."""
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", socket.gethostname()]))


def _builder(subject: x509.Name, issuer: x509.Name, key: Key, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)  # noqa: TID251 - a certificate begins when it is made
    ends = now + datetime.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, ends) - _CLOCKS_DIFFER)
        .not_valid_after(ends)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
