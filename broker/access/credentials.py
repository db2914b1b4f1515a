"""Credentials, which a client shows to log in. Secrets are in no `repr`, so that no log line has them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from broker.access.loopback import is_loopback_host


@dataclass(frozen=True, slots=True)
class Peer:
    """Where somebody comes from: an IP address; "" where there is none, as with a Unix socket.

    `asked_for` is the host that a browser, or what may be one, asked for; "": no browser, or one whose page
    was vouched for.
    """

    host: str
    asked_for: str = ""

    @property
    def is_local(self) -> bool:
        """Whether that is this machine."""
        return not self.host or is_loopback_host(self.host)

    @property
    def is_misled(self) -> bool:
        """Whether a page may have led a browser here by a name of its own, which it had changed into an
        address of this machine, or one that only its visitors reach. Nobody can change an address.
        """
        return bool(self.asked_for) and not is_loopback_host(self.asked_for) and not _is_ip(self.asked_for)


def peer_of(text: str, asked_for: str = "") -> Peer:
    """Return the peer at `host:port`."""
    return Peer(host_of(text), asked_for)


def host_of(text: str) -> str:
    """Return the host of `host:port`."""
    return text.rpartition(":")[0].strip("[]")


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Anonymous:
    """Credentials that show nothing."""


@dataclass(frozen=True, slots=True)
class Password:
    """A user name and a password; a JSON web token comes as a password too."""

    user: str
    password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate that was verified, by its names (`broker.network.tls.gate`).

    `is_claim`: the client asked to be let in by it, and not merely had one.
    """

    names: tuple[str, ...]
    is_claim: bool


Credentials = Anonymous | Certificate | Password


class LoginRefused(Exception):
    """Credentials that let no client in. `reason` is for the broker's log, `told` for the peer: `TOLD`,
    unless it holds whatever the peer shows.
    """

    TOLD = "wrong user name or password"

    def __init__(self, reason: str, told: str = TOLD) -> None:
        super().__init__(reason)
        self.reason = reason
        self.told = told


class Misled(LoginRefused):
    """A refusal of a client without a secret: it comes in only where no page of another site could have sent
    it.
    """

    def __init__(self) -> None:
        reason = "the host that was asked for names another machine: log in"
        super().__init__(reason, reason)


class VhostRefused(Exception):
    """The user may not enter that virtual host."""

    def __init__(self, vhost: str, user: str) -> None:
        super().__init__(f"access to vhost '{vhost}' refused for user '{user}'")
        self.reason = str(self)
