"""What somebody shows who wants to come in. Secrets are in no `repr`, so that no log line has them."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.access.loopback import is_loopback_host


@dataclass(frozen=True, slots=True)
class Peer:
    """Where somebody comes from: an IP address; "" where there is none, as with a Unix socket."""

    host: str

    @property
    def is_local(self) -> bool:
        """Whether that is this machine."""
        return not self.host or is_loopback_host(self.host)


def peer_of(text: str) -> Peer:
    """The peer at `host:port`."""
    return Peer(text.rpartition(":")[0].strip("[]"))


@dataclass(frozen=True, slots=True)
class Anonymous:
    """Nothing was shown."""


@dataclass(frozen=True, slots=True)
class Password:
    """A user name and a password; a JSON web token comes as a password too."""

    user: str
    password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate that was verified, by its names (`broker.tls.peers`).

    `is_claim`: the client asked to be let in by it, and not merely had one.
    """

    names: tuple[str, ...]
    is_claim: bool


Credentials = Anonymous | Certificate | Password


class LoginRefused(Exception):
    """Nobody comes in with that. `reason` is for the broker's log, `told` for the peer: `TOLD`, unless it
    holds whatever the peer shows.
    """

    TOLD = "wrong user name or password"

    def __init__(self, reason: str, told: str = TOLD) -> None:
        super().__init__(reason)
        self.reason = reason
        self.told = told


class VhostRefused(Exception):
    """The user may not enter that virtual host."""

    def __init__(self, vhost: str, user: str) -> None:
        super().__init__(f"access to vhost '{vhost}' refused for user '{user}'")
        self.reason = str(self)
