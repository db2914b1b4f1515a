"""Asking a directory over LDAP who somebody is. ldap3 waits for answers, so this is done in threads.

Users bind with the name that `user_dn` makes of theirs, or that a search finds; then their groups are looked
up. Needs the extra `sluicemq[ldap]`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import ceil
from queue import Empty, LifoQueue
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import ldap3
from ldap3.core.exceptions import LDAPException
from ldap3.utils.conv import escape_filter_chars
from ldap3.utils.dn import escape_rdn, parse_dn

from config import limits
from config.access_settings import DN, USERNAME, LdapSettings

_SUCCESS: Final = 0
_NO_OBJECT: Final = 32
_SIZE_EXCEEDED: Final = 4
_REFUSALS: Final = frozenset((19, 32, 34, 48, 49, 50, 53))
"""Results of a bind that say something about the user (RFC 4511, 4.1.9); others are trouble of the server."""


class DirectoryError(Exception):
    """The directory failed to answer. The text is for the log."""


class Unclear(Exception):
    """The directory does not say clearly who a user is. The text is for the log."""


class Found(NamedTuple):
    """A user whose password is right, with names of groups as `group_name` makes them."""

    name: str
    groups: frozenset[str]


class Directory:
    """Connections to a directory; call it from threads. Connections are kept for the next who asks."""

    def __init__(self, settings: LdapSettings) -> None:
        self._settings = settings
        self._urls = settings.servers
        self._for_users = _Kept(settings.connections, self._connect)
        self._for_searches = _Kept(settings.connections, self._connect_to_search)

    def find(self, user: str, password: str) -> Found | None:
        """Return the user, None: there is none with this password. Raises DirectoryError, Unclear."""
        if not user or not password:
            return None  # without a password a bind proves nothing (RFC 4513, 5.1.2)
        try:
            return self._find(user, password)
        except (DirectoryError, Unclear):
            raise
        except Exception as error:  # the library also raises what it meets in reading what a server sent
            raise DirectoryError(type(error).__name__) from None  # what it says may show a name

    def close(self) -> None:
        """Keep no connection any more."""
        self._for_users.close()
        self._for_searches.close()

    def _find(self, user: str, password: str) -> Found | None:
        settings = self._settings
        if settings.user_dn:
            name = settings.user_dn.replace(USERNAME, escape_rdn(user))
        else:
            asked = settings.user_filter.replace(USERNAME, escape_filter_chars(user))
            with self._for_searches.taken() as connection:
                entries = _search(connection, settings.user_base, asked, ())
            if not entries:
                return None
            if len(entries) > 1:
                raise Unclear("user_filter finds more than one user")
            name = entries[0]["dn"]
        with self._for_users.taken() as connection:
            connection.rebind(name, password)
            connection.password = None  # it stays for no longer than it takes
            result = connection.result["result"]
            if result != _SUCCESS:
                if result not in _REFUSALS:
                    raise DirectoryError(f"a bind came to {connection.result['description']}")
                return None
            if settings.bind_dn:
                with self._for_searches.taken() as searching:
                    return self._look(searching, user, name)
            return self._look(connection, user, name)

    def _look(self, connection: Any, user: str, name: str) -> Found:
        """Return the name and the groups of a user."""
        settings = self._settings
        wanted = tuple(filter(None, (settings.name_attribute, settings.group_attribute)))
        groups: set[str] = set()
        if wanted:
            entries = _search(connection, name, "(objectClass=*)", wanted, scope=ldap3.BASE)
            if not entries:
                raise Unclear("a user's entry cannot be read")
            attributes = entries[0]["raw_attributes"]
            if settings.name_attribute:
                user = _own_name(user, _texts(attributes, settings.name_attribute))
            groups.update(_texts(attributes, settings.group_attribute))
        if settings.group_base:
            asked = settings.group_filter.replace(DN, escape_filter_chars(name))
            asked = asked.replace(USERNAME, escape_filter_chars(user))
            entries = _search(connection, settings.group_base, asked, (), limits.LDAP_GROUPS_MAX)
            groups.update(entry["dn"] for entry in entries)
        return Found(user, frozenset(map(group_name, groups)))

    def _connect(self) -> Any:
        """Return a connection to the first server that answers, which is asked first from then on."""
        failure: Exception = DirectoryError("no server")
        timeout_s = self._settings.timeout_ms / 1000
        for url in self._urls:
            connection = self._connection(url, timeout_s / len(self._urls))
            try:
                connection.open(read_server_info=False)
                if self._settings.start_tls and not connection.start_tls(read_server_info=False):
                    raise DirectoryError("the server begins no TLS")
                connection.socket.settimeout(timeout_s)
            except Exception as error:
                failure = error
                _abandon(connection)
                if self._for_users.is_closed:
                    break
                continue
            if url != self._urls[0]:
                self._urls = (url, *(each for each in self._urls if each != url))
            return connection
        raise failure

    def _connection(self, url: str, timeout_s: float) -> Any:
        """Return a connection that is to be opened, in a time that leaves some for the other servers."""
        return ldap3.Connection(
            _server(url, self._settings, timeout_s),  # a new one: the library puts off a server that failed
            read_only=True,
            auto_referrals=False,
            check_names=False,
            receive_timeout=ceil(timeout_s),  # it takes whole seconds
        )

    def _connect_to_search(self) -> Any:
        settings = self._settings
        connection = self._connect()
        if settings.bind_dn:
            with open(settings.bind_password_file, encoding="utf-8") as file:
                secret = file.read().rstrip("\n")
            if not secret:
                raise DirectoryError("bind_password_file is empty")
            connection.rebind(settings.bind_dn, secret)
            connection.password = None
            if connection.result["result"] != _SUCCESS:
                _abandon(connection)
                raise DirectoryError(f"bind_dn: {connection.result['description']}")
        return connection


class _Kept:
    """Connections that nobody uses at the moment; as many as there are threads are kept."""

    def __init__(self, count_max: int, make: Callable[[], Any]) -> None:
        self._idle: LifoQueue[Any] = LifoQueue(count_max)
        self._make = make
        self.is_closed = False

    @contextmanager
    def taken(self) -> Iterator[Any]:
        """Take a connection; what fails is not used again."""
        connection = self._one()
        try:
            yield connection
        except BaseException:
            _abandon(connection)
            raise
        if self.is_closed or self._idle.full():
            _abandon(connection)
        else:
            self._idle.put_nowait(connection)

    def _one(self) -> Any:
        while True:
            try:
                connection = self._idle.get_nowait()
            except Empty:
                return self._make()
            if _is_there(connection):
                return connection
            _abandon(connection)

    def close(self) -> None:
        self.is_closed = True
        while not self._idle.empty():
            _abandon(self._idle.get_nowait())


def group_name(name: str) -> str:
    """Return the name of a group in one form: how it is written does not matter, nor capitals."""
    try:
        parts = parse_dn(name, strip=True)
    except LDAPException:
        return name.casefold()
    return "".join(f"{kind}={value}{separator}" for kind, value, separator in parts).casefold()


def _server(url: str, settings: LdapSettings, timeout_s: float) -> Any:
    parts = urlsplit(url)
    tls = ldap3.Tls(
        validate=ssl.CERT_REQUIRED,
        ca_certs_file=settings.ca_file or None,
        sni=parts.hostname,
    )
    return ldap3.Server(
        parts.hostname,
        parts.port or (636 if parts.scheme == "ldaps" else 389),
        use_ssl=parts.scheme == "ldaps",
        tls=tls,
        get_info=ldap3.NONE,
        mode=ldap3.IP_V4_PREFERRED,  # every address it has
        connect_timeout=timeout_s,
    )


def _search(
    connection: Any,
    base: str,
    asked: str,
    attributes: tuple[str, ...],
    count_max: int = 2,
    *,
    scope: str = ldap3.SUBTREE,
) -> list[dict[str, Any]]:
    """Return entries, `count_max` at most; raises DirectoryError where the server refuses to search."""
    connection.search(
        base, asked, scope, attributes=attributes or [ldap3.NO_ATTRIBUTES], size_limit=count_max
    )
    if connection.result["result"] not in (_SUCCESS, _NO_OBJECT, _SIZE_EXCEEDED):
        raise DirectoryError(f"a search came to {connection.result['description']}")
    return [entry for entry in connection.response or () if entry["type"] == "searchResEntry"]


def _texts(attributes: dict[str, list[bytes]], name: str) -> list[str]:
    """Return the values of an attribute, whose name may come in other letters."""
    for found, values in attributes.items():
        if found.casefold() == name.casefold():
            return [value.decode("utf-8", "replace") for value in values[: limits.LDAP_GROUPS_MAX]]
    return []


def _own_name(user: str, names: list[str]) -> str:
    """Return the user's name as the directory writes it: it takes capitals and spaces for the same, who is
    counted and banned by it is not to have several.
    """
    if len(names) == 1:
        return names[0]
    for name in names:
        if name.casefold() == user.casefold():
            return name
    raise Unclear("a user's entry has not one name_attribute")


def _is_there(connection: Any) -> bool:
    """Return whether the server has neither closed the connection nor said anything unasked."""
    if connection.closed:
        return False
    timeout_s = connection.socket.gettimeout()
    try:
        connection.socket.setblocking(False)
        connection.socket.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        connection.socket.settimeout(timeout_s)
        return True
    except OSError:
        return False
    return False


def _abandon(connection: Any) -> None:
    with suppress(Exception):
        connection.unbind()
