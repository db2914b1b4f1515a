"""The messages to a service manager: systemd's notification protocol, sd_notify(3)."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from typing import Final

_MICROSECONDS: Final = 1_000_000


class ServiceManager:
    """Tells systemd how the broker is; says nothing where nobody listens."""

    def __init__(self, environment: MutableMapping[str, str] | None = None) -> None:
        """Take `NOTIFY_SOCKET` and `WATCHDOG_USEC` out of the environment: no child speaks for us."""
        environment = os.environ if environment is None else environment
        address = environment.pop("NOTIFY_SOCKET", "")
        watchdog_us = environment.pop("WATCHDOG_USEC", "")
        watched_pid = environment.pop("WATCHDOG_PID", str(os.getpid()))
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_s = (
            int(watchdog_us) / _MICROSECONDS
            if watchdog_us.isdecimal() and watched_pid == str(os.getpid())
            else 0.0
        )

    @property
    def alive_interval_s(self) -> float:
        """How often `alive` is to be called: half of what the watchdog waits; 0 if nothing watches."""
        return self._watchdog_s / 2

    def ready(self, status: str) -> None:
        """Tell that the broker serves."""
        self._tell(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")

    def alive(self) -> None:
        """Tell that the event loop turns."""
        self._tell("WATCHDOG=1")

    def stopping(self, status: str) -> None:
        """Tell that the broker stops."""
        self._tell(f"STOPPING=1\nSTATUS={status}")

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(text.encode(), self._address)
            except OSError:  # a manager that does not listen is no reason to stop
                pass
