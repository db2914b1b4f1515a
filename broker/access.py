"""Who may come in. Until there are users: anybody from this machine, nobody from elsewhere."""

from __future__ import annotations

import hmac
import ipaddress

GUEST = "guest"


def is_loopback(peer: str) -> bool:
    """Whether a peer (`host:port`) is on this machine."""
    host = peer.rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def check_amqp(peer: str, username: str, password: str) -> str:
    """ "" if these credentials are good, else why not (for the log, not for the peer)."""
    if not _is_guest(username, password):
        return "wrong user name or password"
    if not is_loopback(peer):
        return "user guest may only connect from this machine"
    return ""


def check_mqtt(peer: str, username: str | None, password: bytes | None) -> str:
    """ "" if an MQTT client may connect, else why not. Without a user name it is anonymous."""
    if username is not None and not _is_guest(username, (password or b"").decode("utf-8", "replace")):
        return "wrong user name or password"
    if not is_loopback(peer):
        return "clients without an account may only connect from this machine"
    return ""


def _is_guest(username: str, password: str) -> bool:
    return username == GUEST and hmac.compare_digest(password.encode(), GUEST.encode())
