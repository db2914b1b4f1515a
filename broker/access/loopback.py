"""Which addresses are this machine's own."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from config import limits


@lru_cache(limits.HOSTS_KNOWN_MAX)
def is_loopback_host(host: str) -> bool:
    """Return whether an IP address, or `localhost`, is this machine's own; other names are not looked up."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback
