"""Where a broker that is measured speaks TLS."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.brokers import free_port
from benchmarks.load.sockets import TLS_NAME
from benchmarks.load.target import Target
from broker.tls.making import Authority, write_pair


@dataclass
class TlsPorts:
    """Where a broker speaks TLS, and its certificate."""

    directory: Path
    amqps: int
    mqtts: int

    @classmethod
    def made(cls, directory: Path) -> TlsPorts:
        """An authority, a certificate of it, free ports."""
        authority = Authority.made()
        write_pair(directory, "ca", authority.key, authority.certificate)
        write_pair(directory, "server", *authority.issue(TLS_NAME, [TLS_NAME], is_server=True))
        for name in ("ca", "server"):  # mosquitto and RabbitMQ may run as users of their own
            (directory / f"{name}.key").chmod(0o644)
        return cls(directory, free_port(), free_port())

    def file(self, name: str) -> str:
        """The path of one of its files."""
        return str(self.directory / name)

    def listeners(self) -> dict[str, Any]:
        """Of a configuration of SluiceMQ."""
        pem = {"cert": self.file("server.crt"), "key": self.file("server.key")}
        return {
            "amqps": {"port": self.amqps, "tls": pem},
            "mqtts": {"port": self.mqtts, "tls": pem},
        }

    def over(self, target: Target) -> Target:
        """The same broker over TLS."""
        login = replace(target.login, ca_file=self.file("ca.crt"))
        return replace(target, amqp_port=self.amqps, mqtt_port=self.mqtts, login=login)
