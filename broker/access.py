"""Who may come in. Until there are users: anybody from this machine, nobody from elsewhere.

Why somebody may not is said in the log and to the client; it gives nothing away.
"""

from __future__ import annotations

import hmac
import ipaddress
from typing import Final

GUEST: Final = "guest"
WRONG_CREDENTIALS: Final = "wrong user name or password"
FROM_ELSEWHERE: Final = "this version has no accounts: clients may only connect from the broker's own machine"


def is_loopback(peer: str) -> bool:
    """Whether a peer (`host:port`) is on this machine."""
    return is_loopback_host(peer.rpartition(":")[0].strip("[]"))


def is_loopback_host(host: str) -> bool:
    """Whether an IP address, or `localhost`, is this machine's own; other names are not looked up."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def check_amqp(peer: str, username: str, password: str) -> str:
    """ "" if an AMQP client may connect with these credentials, else why not."""
    if not _is_guest(username, password):
        return WRONG_CREDENTIALS
    return "" if is_loopback(peer) else FROM_ELSEWHERE


def check_mqtt(peer: str, username: str | None, password: bytes | None) -> str:
    """ "" if an MQTT client may connect, else why not. Without a user name it is anonymous."""
    if username is not None and not _is_guest(username, (password or b"").decode("utf-8", "replace")):
        return WRONG_CREDENTIALS
    return "" if is_loopback(peer) else FROM_ELSEWHERE


def _is_guest(username: str, password: str) -> bool:
    return username == GUEST and hmac.compare_digest(password.encode(), GUEST.encode())
