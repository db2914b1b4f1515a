"""A broker of several workers: what they have in common is taken here, and given to each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

from broker.admin.reloading import merged
from broker.app import Broker
from broker.logs.log_processors import LogLevel
from broker.network.listening import ListenError
from broker.network.reserved_ports import ReservedPorts
from broker.nodes.node_files import node_side
from broker.nodes.node_keeper import keep
from broker.nodes.node_lock import NodeLock
from broker.outside import Outside, announce, listen_failure, status_text, tell_failure, write_ready_file
from broker.process.service_manager import ServiceManager
from broker.workers.node_side import Epoch, Peers
from broker.workers.supervised import Supervised
from broker.workers.supervisor import EXIT_FAILED, KEEPER, Node, Serving, Supervisor
from broker.workers.worker_mark import WorkerMark
from broker.workers.worker_place import WorkerPlace
from config import limits
from config.cluster_settings import ClusterSettings
from config.settings import Settings
from config.settings_loader import ConfigError

_FOR_WORKERS: Final = (
    "broker.admin.figures",
    "broker.network.home_gate",
    "broker.workers.worker_settings",
    "broker.workers.workers",
)
"""What only workers need, and each of them would load for itself: more than the rest of their start takes."""

Run = Callable[[Broker, Outside], int]
"""Runs a broker until it is told to stop; gives the exit code."""


def supervise(common: Common) -> int:
    """Have a broker of several workers run until SIGTERM, SIGINT or a failure; gives the exit code."""
    load_for_workers()
    directories = tempfile.gettempdir()
    if len(directories) > limits.WORKER_DIRECTORY_BYTES_MAX:
        return _cannot_start(f"{directories} is too long a path for sockets of workers; TMPDIR names another")
    try:
        ports = ReservedPorts(common.settings.listeners)
    except ListenError as error:
        tell_failure(listen_failure(error, common.settings))
        return EXIT_FAILED
    run_directory = Path(tempfile.mkdtemp(prefix="sluicemq-"))  # for this user alone
    cluster = common.settings.cluster
    try:
        if cluster is None or not cluster.listen:
            return common.supervised_at(ports, run_directory).run()
        return common.node_at(ports, run_directory, cluster).run()
    except ConfigError as error:
        return _cannot_start(str(error))
    finally:
        ports.give_back()
        shutil.rmtree(run_directory, ignore_errors=True)
        if common.ready_file is not None:
            common.ready_file.unlink(missing_ok=True)


def load_for_workers() -> None:
    """Load, before any process is forked, what all workers need: clients wait for one that starts."""
    for name in _FOR_WORKERS:
        import_module(name)


class Common:
    """What there is once in a broker of `count` workers: settings, ready file, announcement."""

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings],
        ready_file: Path | None,
        count: int,
        run: Run,
        level: LogLevel,
        mark: WorkerMark,
    ) -> None:
        """`load` reads the settings anew, `run` runs a worker; what it logs has the `mark`."""
        self.settings = settings
        self.ready_file = ready_file
        self._count = count
        self._run = run
        self._load = load
        self._level = level
        self._mark = mark
        self._ports: ReservedPorts
        self._manager = ServiceManager()
        self._is_announced = False

    def supervised_at(self, ports: ReservedPorts, run_directory: Path) -> Supervisor:
        """Return the supervisor of the workers that listen at these ports."""
        self._ports = ports
        places = [
            WorkerPlace(number, self._count, run_directory, ports.unix_sockets)
            for number in range(self._count)
        ]
        return Supervisor(
            places, self._work, self._on_serving, self._reload, ports.leave_ports, self._manager, tell_failure
        )

    def node_at(self, ports: ReservedPorts, run_directory: Path, cluster: ClusterSettings) -> Supervisor:
        """Return the supervisor of a node of several, whose workers listen at these ports for clients.

        Raises ConfigError, for files that cannot be read.
        """
        self._ports = ports
        side = node_side(cluster)
        lock = NodeLock.of(self.settings.storage.url, cluster.node_name)  # before any process is forked

        def place_of(number: int, count: int, epoch: int | None) -> WorkerPlace:
            own = replace(side, epoch=Epoch(epoch), peers=Peers())
            return WorkerPlace(number, count, run_directory, ports.unix_sockets, own)

        return Supervisor(
            (), self._work, self._on_serving, self._reload, ports.leave_ports, self._manager, tell_failure,
            Node(partial(self._keep, lock), place_of(KEEPER, 0, 0), place_of),
        )  # fmt: skip

    def _work(self, place: WorkerPlace, outside: Supervised) -> int:
        self._mark.number = place.number
        broker = Broker(self._at_ports(self.settings), load=self._loaded, place=place)
        if place.node is not None:
            outside.turned = broker.turned_s
        return self._run(broker, outside)

    def _keep(self, lock: NodeLock, place: WorkerPlace, outside: Supervised) -> int:
        from broker.http.shardless import ShardlessHttp  # in its process only

        return keep(self._at_ports(self.settings), ShardlessHttp, lock, place, outside)

    def _at_ports(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"listeners": self._ports.in_settings(settings.listeners)})

    def _loaded(self) -> Settings:
        return self._at_ports(self._load())

    def _reload(self) -> None:
        """Read the settings anew for workers that are started again; each tells itself what is wrong."""
        try:
            self.settings = merged(self.settings, self._load())
        except ConfigError:
            return
        self._level.follow(self.settings)

    def _on_serving(self, workers: Sequence[Serving]) -> None:
        first = workers[0]
        if self.ready_file is not None:
            pids = [worker.pid for worker in workers]
            write_ready_file(self.ready_file, {"ports": first.ports, "workers": pids})
        if not self._is_announced:
            self._is_announced = True
            cluster = self.settings.cluster
            several = f"{self._count} workers" if self._count else f"node {cluster and cluster.node_name}"
            announce(self.settings, first.ports, f"{first.storage}; {several}")
            self._manager.ready(status_text(first.ports))


def refuse_take_over() -> int:
    """Say that several workers cannot take a storage over; gives the exit code."""
    return _cannot_start("--take-over works with workers: 1 only; stop the other broker")


def _cannot_start(reason: str) -> int:
    tell_failure(f"cannot start: {reason}")
    return EXIT_FAILED
