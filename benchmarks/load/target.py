"""Where a broker listens, and what its processes cost while a run lasts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from benchmarks.load import process_stat


@dataclass(frozen=True)
class Login:
    """How to come in. Without a user: `guest` over AMQP, nobody over MQTT; without `ca_file` no TLS."""

    user: str = ""
    password: str = ""
    ca_file: str = ""


ANYBODY: Final = Login()


@dataclass(frozen=True)
class Target:
    """A running broker; `pid` 0 when its processes cannot be looked at."""

    name: str
    host: str = "127.0.0.1"
    amqp_port: int = 0
    mqtt_port: int = 0
    pid: int = 0
    login: Login = ANYBODY


class CpuUse:
    """CPU seconds of the broker between two moments."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def percent(self, wall_s: float) -> float:
        return round(100 * self.seconds / wall_s, 1)


@contextmanager
def broker_cpu(target: Target) -> Iterator[CpuUse]:
    """Measures the broker's CPU inside the block."""
    use = CpuUse()
    before = process_stat.cpu_s(target.pid) if target.pid else 0.0
    yield use
    if target.pid:
        use.seconds = process_stat.cpu_s(target.pid) - before
