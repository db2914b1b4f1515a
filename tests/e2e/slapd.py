"""A directory for tests: OpenLDAP's slapd, where it is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

from broker.network.tls.making import Authority, write_pair
from tests.waiting import until

SLAPD: Final = shutil.which("slapd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
BASE: Final = "dc=example,dc=org"
PASSWORD: Final = "a-Password-of-this-test"
SEARCHER: Final = f"cn=searcher,{BASE}"
SEARCHER_PASSWORD: Final = "the-Searcher's-password"
FAILURES_MAX: Final = 3  # wrong passwords, until one is locked out

_CONFIGURATION: Final = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload ppolicy
pidfile {directory}/pid
TLSCACertificateFile {directory}/ca.crt
TLSCertificateFile {directory}/server.crt
TLSCertificateKeyFile {directory}/server.key
database mdb
maxsize 10485760
suffix "{base}"
rootdn "cn=root,{base}"
rootpw root
directory {directory}/data
overlay ppolicy
ppolicy_default "cn=policy,{base}"
access to attrs=userPassword by anonymous auth by * none
access to dn.base="uid=hidden,ou=people,{base}" by * none
access to * by users read by * none
"""

_ENTRIES: Final = """
dn: {base}
objectClass: dcObject
objectClass: organization
o: example

dn: cn=policy,{base}
objectClass: device
objectClass: pwdPolicy
cn: policy
pwdAttribute: userPassword
pwdLockout: TRUE
pwdMaxFailure: {failures}

dn: cn=searcher,{base}
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: searcher
userPassword: {searcher_password}

dn: ou=people,{base}
objectClass: organizationalUnit
ou: people

dn: ou=groups,{base}
objectClass: organizationalUnit
ou: groups
"""

_PERSON: Final = """
dn: uid={coded},ou=people,{base}
objectClass: inetOrgPerson
uid: {uid}
cn: {uid}
sn: {uid}
userPassword: {password}
"""

_GROUP: Final = """
dn: cn={name},ou=groups,{base}
objectClass: groupOfNames
cn: {name}
"""


class Slapd:
    """A slapd with people and groups of them, on two free ports: with StartTLS, and with TLS."""

    def __init__(self, directory: Path, groups: dict[str, list[str]]) -> None:
        self.directory = directory
        (directory / "data").mkdir(parents=True)
        authority = Authority.made()
        write_pair(directory, "ca", authority.key, authority.certificate)
        write_pair(directory, "server", *authority.issue("localhost", ["localhost"], is_server=True))
        (directory / "slapd.conf").write_text(_CONFIGURATION.format(directory=directory, base=BASE))
        people = {person for members in groups.values() for person in members}
        parts = [
            _ENTRIES.format(base=BASE, failures=FAILURES_MAX, searcher_password=SEARCHER_PASSWORD),
            *[_PERSON.format(coded=coded(uid), uid=uid, password=PASSWORD, base=BASE) for uid in people],
        ]
        for name, members in groups.items():
            lines = "".join(f"member: uid={coded(uid)},ou=people,{BASE}\n" for uid in members)
            parts.append(_GROUP.format(name=name, base=BASE) + lines)
        (directory / "entries.ldif").write_text("\n".join(parts))
        self._run("-Tadd", "-l", str(directory / "entries.ldif"))
        self.port, self.tls_port = _free_port(), _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        urls = f"ldap://localhost:{self.port} ldaps://localhost:{self.tls_port}"
        arguments = ["-f", str(self.directory / "slapd.conf"), "-h", urls, "-d", "0"]
        self._process = subprocess.Popen([SLAPD, *arguments], stderr=subprocess.DEVNULL)
        until(lambda: _answers(self.port) and _answers(self.tls_port))

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _run(self, *arguments: str) -> None:
        subprocess.run([SLAPD, *arguments, "-f", str(self.directory / "slapd.conf")], check=True)


def coded(uid: str) -> str:
    """A user's name in a distinguished name (RFC 4514, 2.4)."""
    return "".join(f"\\{each}" if each in ',+"\\<>;=#' else each for each in uid)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("localhost", port), timeout=1).close()
    except OSError:
        return False
    return True
