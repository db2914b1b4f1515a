"""The composition root: builds everything, starts it in order, stops it in reverse."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import structlog

from broker.access.access import GUEST_FROM_ELSEWHERE, Access
from broker.access.loopback import is_loopback_host
from broker.admin.admin import Admin
from broker.admin.cluster import Cluster
from broker.admin.node import Node, StartView
from broker.admin.reloading import Reloaded, changed_keys, merged, needs_restart
from broker.admin.users import UserAdmin
from broker.amqp.topology.policy_keys import check_default_policies, default_policies
from broker.clients.farewell import Farewell, Requests
from broker.clock import Clock, until_beat_s
from broker.configured import declare_configured, default_policy
from broker.connections.registry import Goodbye
from broker.drivers import Drivers
from broker.engine.client import ShardClient
from broker.engine.shard import Shard
from broker.events.event_exchange import EventExchange
from broker.events.user_events import tell_users
from broker.links.link_directory import Links
from broker.logs.start_log import StartLog
from broker.logs.trouble_log import TroubleLog
from broker.mqtt.consuming.subscribe_options import delete_left
from broker.network.listening import AddressInUse, ListenError, Listeners
from broker.network.tcp_ports import has_port
from broker.network.tls.contexts import TlsContexts
from broker.process.descriptors import connection_room, open_file_count, open_files_limit
from broker.process.free_memory import ReturnTimes, memory_returner, resident_bytes
from broker.process.loop_watch import Lag
from broker.properties.readers import install_readers
from broker.telemetry.telemetry import Telemetry, telemetry_of
from broker.vhosts.hub import Hub
from broker.vhosts.vhost_directory import VhostDirectory
from config import limits
from config.settings import (
    AmqpListenerSettings,
    ListenersSettings,
    MqttListenerSettings,
    Settings,
    StorageSettings,
)
from config.settings_loader import ConfigError
from storage.errors import StorageError
from storage.fast_batch import fast_batch_status, is_fast_batch_on
from storage.open import open_store, storage_holder_pid
from storage.shards import refuse_left_shards
from storage.store import Replay, Store
from storage.store_lease import StoreLease

if TYPE_CHECKING:
    from broker.http.server import HttpServer
    from broker.network.home_gate import ClientHomes
    from broker.workers.node_side import Epoch
    from broker.workers.worker_place import WorkerPlace
    from broker.workers.workers import Workers

_log: Final = structlog.get_logger("sluicemq")


class Broker:
    """One broker: a store, the queues in it, listeners.

    `ports` are the ports the listeners got, by name. `failed` is set, with `failure`, when the store fails
    for good: clients are sent away, nobody is let in, calls of `admin` raise BrokerStopped, and the owner has
    to `stop`. As an asynchronous context manager it starts and stops itself:

        async with Broker(storage="memory:") as broker:
            connect_to("127.0.0.1", broker.ports["amqp"])

    Once stopped it can be started again: with what its storage kept, and with new ports where they are free
    ones.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        storage: str | None = None,
        clock: Clock | None = None,
        load: Callable[[], Settings] | None = None,
        place: WorkerPlace | None = None,
    ) -> None:
        """Without `settings`: both protocols on free ports of 127.0.0.1, and messages in `storage` (a path, a
        URL, by default "memory:"). `load` gives the settings as they are by now, for `reload`. With a `place`
        it is one of several workers, and takes of the settings what is for it.

        Raises ValueError when `storage` cannot be one.
        """
        if settings is None:
            settings = Settings(
                storage=StorageSettings(url="memory:" if storage is None else storage),
                listeners=ListenersSettings(
                    mqtt=MqttListenerSettings(port=0), amqp=AmqpListenerSettings(port=0)
                ),
            )
        elif storage is not None:
            raise ValueError("the storage stands in the settings")
        if place is None and settings.workers not in (1, "auto"):
            raise ValueError("workers: several are processes of `sluicemq serve`; this is one worker")
        if place is not None:
            from broker.workers.worker_settings import loading, settings_of

            settings, load = settings_of(place, settings), loading(place, load)
        self.settings = settings
        self._place = place
        self._load = load
        self._followers: list[Callable[[Settings], None]] = []
        self.clock = clock or Clock()
        self.ports: dict[str, int] = {}
        self.failed = asyncio.Event()
        self.failure: StorageError | None = None
        self.storage_description = ""
        self._is_started = False
        self._start_begun = 0.0
        self._replayed: Replay | None = None
        self._lease: StoreLease | None = None
        self._farewell = self._new_farewell()
        self._listeners = Listeners(
            settings.listeners.opened(),
            self.clock,
            shares_ports=place is not None,
            unix_sockets=None if place is None else place.unix_sockets,
        )
        self._tls = TlsContexts({})
        self._drivers: Drivers
        self._http: Mapping[str, Requests] = {}
        self._lag: Callable[[], Lag] = lambda: Lag(0, 0, 0)
        self._telemetry: Telemetry | None = None
        self._shard: Shard | None = None
        self._hub: Hub | None = None
        self._vhosts: VhostDirectory
        self._links: Links
        self._workers: Workers | None = None
        self._homes: ClientHomes | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def admin(self) -> Admin:
        """The administration, past the protocols; there once `start` has run, or
        RuntimeError.
        """
        told = None if self._workers is None else self._workers.shared.users_changed
        users = UserAdmin(self.hub.access, lambda: self.settings, told)
        return Admin(self.hub.client, lambda: self.settings, self.clock, self.reload, self._vhosts, users)

    async def _read_users(self, by: str) -> None:
        """Read the users anew, which somebody changed at the first worker."""
        access = self.hub.access
        try:
            await access.take(access.prepare(self.settings.access), by)
        except ConfigError as error:
            _log.error("users.not_read", reason=str(error))

    async def reload(self) -> Reloaded:
        """Read the settings, users and certificates anew, and apply what can be while clients are served.

        Raises ConfigError for what cannot be used, QueueManagerError for a queue that cannot be as it is
        configured; then nothing changes but queues made before that one.
        """
        if self._load is None:
            raise ConfigError(["this broker was started without a configuration that could be read again"])
        new = self._load()
        keys = changed_keys(self.settings, new)
        settings = merged(self.settings, new)
        hub = self.hub
        check_default_policies(settings.default_policies)
        accounts = hub.access.prepare(settings.access)
        contexts = TlsContexts(settings.listeners.with_tls())
        self._vhosts.configure(settings.vhosts)
        await declare_configured(settings, self._client_of)
        await hub.client.commits.durable()
        self._tls.take(contexts)
        ended = await hub.access.take(accounts)
        self.settings = settings
        for follow in self._followers:
            follow(settings)
        waiting = tuple(key for key in keys if needs_restart(key))
        told = Reloaded(changed=tuple(keys), needs_restart=waiting, connections_ended=ended)
        _log.info("config.reloaded", **asdict(told))
        return told

    def _client_of(self, vhost: str) -> ShardClient:
        """Return the way to the shard for clients of a virtual host."""
        return self.hub.of_vhost(vhost).client

    def on_reload(self, follow: Callable[[Settings], None]) -> None:
        """Have it called with the settings that hold after a reload."""
        self._followers.append(follow)

    @property
    def hub(self) -> Hub:
        """The hub that the connections share; there once `start` has run, or RuntimeError."""
        if self._hub is None:
            raise RuntimeError("the broker has not been started")
        return self._hub

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(self, store: Store | None = None, *, take_over: bool = False) -> None:
        """Take the ports, open the store (or use the given one), recover, let clients in.

        `take_over` fences another process that has the storage open, instead of leaving it to it, and waits
        for its ports. Raises ConfigError (of the users file, of certificates), ListenError, StorageError,
        RuntimeError when it was started and not stopped.
        """
        if self._is_started:
            raise RuntimeError("the broker is started already")
        self._is_started = True
        self._start_begun = self.clock.monotonic()
        self._replayed = None
        self.ports = {}
        self.failure = None
        if self._hub is not None:  # again, maybe in another event loop
            self.failed = asyncio.Event()
            self._farewell = self._new_farewell()
        try:
            await self._start(store, take_over=take_over)
        except BaseException:
            self._is_started = False
            raise

    async def _start(self, store: Store | None, *, take_over: bool) -> None:
        access = Access(self.settings.access, self.clock)
        self._telemetry = telemetry_of(self.settings.telemetry, self.clock)
        self._tls.take(TlsContexts(self.settings.listeners.with_tls()))
        try:
            await self._listeners.bind()
        except AddressInUse:
            if not take_over:
                raise
            for held in await self._listeners.in_use():
                if not self._is_freed_by_take_over(held.port):
                    raise held from None
        try:
            with StartLog() as starting:
                await self._open(store, access, starting, take_over=take_over)
        except BaseException:
            self._listeners.close()
            raise

    def _is_freed_by_take_over(self, port: int) -> bool:
        """Return whether the broker that has the storage may be who has the port: ending it helps nobody
        else.
        """
        pid = storage_holder_pid(self.settings.storage)
        return pid is None or (pid > 0 and has_port(pid, port) is not False)

    async def _open(
        self, store: Store | None, access: Access, starting: StartLog, *, take_over: bool
    ) -> None:
        check_default_policies(self.settings.default_policies)
        if store is None:
            store = await self._open_store(starting, take_over=take_over)
        self.storage_description = store.describe()
        starting.step("reading the queues")
        manager_settings = self.settings.queue_manager
        try:
            shard = await Shard.open(
                store,
                self.clock,
                default_policy=default_policy(self.settings),
                auto_create=manager_settings.auto_create,
                cache_bytes_max=manager_settings.cache_bytes,
                instance_id=self.settings.storage.instance_id or secrets.token_hex(4),
                auto_commit_interval_ms=manager_settings.auto_commit_interval_ms,
                readers=install_readers,
            )
        except BaseException:
            await store.close()
            raise
        self._shard = shard
        shard.group_expiry.generated_expires_ms = manager_settings.generated_group_expires_ms
        shard.on_failure(self._on_failure)
        client = self._put_together(shard, access)
        try:
            await self._prepare(shard, client, starting)
            starting.step("taking the ports")
            await self._listen(store)
            if self._place is None or self._place.is_first:
                self._links.begin()
            shard.ending.check()
        except BaseException:
            await self._shut_down(shard)
            raise
        if self._telemetry is not None:
            self._telemetry.start()
        self._ticker = asyncio.create_task(self._tick(store))
        self._keeper = asyncio.create_task(self._keep_small())

    async def _prepare(self, shard: Shard, client: ShardClient, starting: StartLog) -> None:
        """Have what is there before clients are: other workers, virtual hosts, configured queues."""
        starting.step("declaring the configured queues")
        shard.start()
        if self._workers is not None:
            starting.step("finding the other workers")
            await self._workers.meet(self.hub.want_settle)
        await self._vhosts.begin(self.settings.vhosts)
        await declare_configured(self.settings, self._client_of)
        shard.wake()
        if self._workers is None and (owed := shard.manager.queues.outboxes()):
            from broker.workers.outbox import OwnOutbox  # of several workers, before their shards were merged

            for queue in owed:
                OwnOutbox(client, shard, queue)
        self.hub.spawn(delete_left(client.groups))
        if self._workers is not None:
            starting.step("waiting for the first worker")
            await self._workers.begin()

    def _put_together(self, shard: Shard, access: Access) -> ShardClient:
        """Make what clients are served with; give the way to the shard."""
        loop = asyncio.get_running_loop()
        client = ShardClient(shard)
        if self._place is not None:
            from broker.workers.workers import Workers

            self._workers = Workers(self._place, client, self.clock)
            client = self._workers.client
        if self._telemetry is not None:
            client = self._telemetry.trace(client)
        self._hub = Hub(self.settings, client, access, self.clock, loop)
        self._hub.banning.restore()
        if self._workers is not None:
            self._workers.on_progress(self._hub.progressed)
            self._hub.server_properties["worker"] = self._workers.number
        if self._place is not None and self._place.node is not None:
            self._hub.moves_to = partial(self._place.node.peers.reference_of, self._place.number)
        EventExchange(loop, self.clock, client, self._hub.counters)
        if self._place is None or self._place.is_first:
            access.on_users_taken(partial(tell_users, self._hub.events))
        self._vhosts = VhostDirectory(
            self._hub, lambda vhost: default_policies(self.settings.default_policies, vhost)
        )
        self._links = Links(self._hub)
        if self._workers is not None:
            shared = self._workers.shared
            shared.vhosts, shared.bans = self._vhosts, self._hub.banning
            shared.read_users = self._read_users
            self._hub.number_from(self._workers.number, self._workers.count)
        return client

    def _start_view(self, seconds: float) -> StartView:
        replayed = self._replayed
        return StartView(
            seconds=seconds,
            replay_seconds=0.0 if replayed is None else replayed.took_ms / 1000,
            replayed_commits=0 if replayed is None else replayed.commit_count,
        )

    async def _open_store(self, starting: StartLog, *, take_over: bool) -> Store:
        starting.step(f"opening the storage {self.settings.storage.url}")
        node = None if self._place is None else self._place.node
        if node is None and (self._place is None or self._place.is_first):
            count = 1 if self._place is None else self._place.count
            await refuse_left_shards(self.settings.storage, count, starting.step)
        cluster = self.settings.cluster
        lease_ms = None if cluster is None else cluster.lease_ms
        opened = await open_store(
            self.settings.storage,
            take_over=take_over or node is not None,  # which is the shard's owner, whoever was before
            lease_ms=lease_ms,
            until=None if node is None else node.deadline,
            may_write=None if node is None else partial(self._until_owned, node.epoch, starting),
            tell=starting.step,
        )
        self._lease = opened.lease
        for note in opened.notes:
            _log.warning("storage.note", note=note)
        opened.tell_replayed(self._note_replayed)
        if is_fast_batch_on():
            _log.debug("storage.batches", filled=fast_batch_status())
        else:
            _log.warning("storage.slow_batches", status=fast_batch_status())
        return opened

    async def _until_owned(self, epoch: Epoch, starting: StartLog) -> None:
        """Wait until the shard is handed over to this node, if it is about to be."""
        if not epoch.is_begun:
            starting.step("waiting until the shard is handed over")
            await epoch.begun()
            starting.step(f"opening the storage {self.settings.storage.url}")
            self._start_begun = self.clock.monotonic()

    def _note_replayed(self, replayed: Replay) -> None:
        _log.info("storage.replayed", **replayed._asdict())
        self._replayed = replayed

    def tell_lag(self, lag: Callable[[], Lag]) -> None:
        """Have metrics tell what `lag` gives: who runs the loop watches it."""
        self._lag = lag

    def turned_s(self) -> float:
        """Return when what the store has last made durable was begun, by the clock of leases; of a store
        without a lease that is not known, and 0.
        """
        return 0.0 if self._lease is None else self._lease.begun_s

    def hurry(self) -> None:
        """Have a `stop` that is going on wait for no client: what was confirmed is safe all the same."""
        self._farewell.hurry()

    async def stop(self) -> None:
        """Take nothing more from anybody, confirm what came, say goodbye to clients, close the store.

        Nothing is done if that was done, or nothing was started. Raises TimeoutError when the store does not
        close in time.
        """
        if self._shard is None or self._shard.is_closed:
            return
        await self._shut_down(self._shard)
        _log.info("broker.stopped")

    def _new_farewell(self) -> Farewell:
        is_of_nodes = self._place is not None and self._place.node is not None
        return Farewell(limits.NODE_GOODBYE_TIMEOUT_S) if is_of_nodes else Farewell()

    async def _shut_down(self, shard: Shard) -> None:
        self._listeners.close()
        if self._homes is not None:
            self._homes.stop()
        await self._listeners.let_in()
        for task in (self._ticker, self._keeper):
            if task is not None:
                task.cancel()
        if self._hub is not None:
            self._hub.stop_tasks()
            await self._farewell.say(self._hub, self._http.values(), confirms=self.failure is None)
            await self._hub.access.close()
        if self._workers is not None:
            self._workers.stop()
        await asyncio.wait_for(shard.close(), limits.DRAIN_TIMEOUT_S)
        if self._telemetry is not None:
            await self._telemetry.stop()
        self._is_started = False

    async def _listen(self, store: Store) -> None:
        listeners = self._listeners
        if not listeners.ports:  # those of the broker that was taken over from
            await listeners.bind_within(limits.LISTEN_TAKE_OVER_TIMEOUT_S)
        room = connection_room(open_files_limit(), open_file_count())
        if not room.connections_max:
            raise ListenError(room.reason)
        if room.connections_max < limits.CONNECTIONS_MAX:
            _log.info("connections.max", reason=room.reason)
        hub = self.hub
        for name, listener in self.settings.listeners.opened().items():
            if not hub.access.admits_others and not is_loopback_host(listener.bind):
                reason = GUEST_FROM_ELSEWHERE
                _log.warning("listener.local_only", listener=name, bind=listener.bind, reason=reason)
        if self._place is not None:
            from broker.network.home_gate import ClientHomes

            node_listener = None if self._workers is None else self._workers.node_listener
            self._homes = ClientHomes(self._place, listeners, node_listener)
        self._drivers = Drivers(hub, self.settings.listeners, self._homes)
        makers = self._drivers.makers()
        node = Node(
            hub,
            self.settings,
            self.storage_description,
            lambda: self._listeners.ports,
            lambda: self._lag(),
            lambda: store.journal,
            partial(self._start_view, self.clock.monotonic() - self._start_begun),
            self._workers,
        )
        if self._workers is not None:
            from broker.admin.figures import Figures

            self._workers.serve(node=node, figures=Figures(hub, node))
        if self._place is not None and self._place.node is not None:
            node.cluster = Cluster(self._place.node.peers)
        over_http = listeners.ports.keys() - makers.keys()
        besides = over_http if self._place is not None and self._place.node is not None else ()
        listeners.open(makers, room, self._tls, hub.access.addresses, besides)
        if self._homes is not None:
            self._homes.begin()
        self.ports = listeners.ports
        self._http = {}
        if over_http:
            hub.spawn(self._open_http(node, over_http))

    async def _open_http(self, node: Node, names: Collection[str]) -> None:
        if self._place is not None and self._place.node is not None:
            await self._place.node.have_alone("http", self._place.run_directory)
            self._listeners.let_wait(names)
        try:
            self._http = servers = await asyncio.to_thread(
                _made_http, self.hub, self.admin, node, self._links, names
            )
        except Exception:
            _log.exception("http.not_started")
            self._listeners.leave_out(names)  # so that nobody waits for it
        else:
            self._listeners.let_wait_in({name: server.accept for name, server in servers.items()})

    async def _tick(self, store: Store) -> None:
        hub = self.hub
        trouble = TroubleLog(store, self.hub.events.tell_trouble)
        while True:
            await asyncio.sleep(until_beat_s(limits.DEADLINE_CHECK_INTERVAL_MS))
            now = self.clock.monotonic()
            await hub.check_deadlines(now)
            slow = hub.bodies.overdue(now)
            if slow is not None:
                slow.end_slow_message()
            hub.access.present.expire(self.clock.now_ms())
            trouble.look(self.clock.now_ms())
            hub.settle_turn()

    async def _keep_small(self) -> None:
        loop = asyncio.get_running_loop()
        give_back = memory_returner()
        times = ReturnTimes(resident_bytes, self.clock.monotonic(), self.clock.thread_s())
        while True:
            await asyncio.sleep(until_beat_s(limits.MEMORY_LOOK_INTERVAL_MS))
            if times.look(self.clock.monotonic(), self.clock.thread_s()):
                await loop.run_in_executor(None, give_back)
                times.given(self.clock.monotonic())

    def _on_failure(self, error: StorageError) -> None:
        """Send everybody away: a client that waits for a confirmation would wait for ever."""
        self.failure = error
        _log.error("storage.failed", reason=error.reason, kind=type(error).__name__)
        self._listeners.close()
        for transport in list(self.hub.transports):
            transport.send_away(Goodbye.STORE_FAILED)
        self.failed.set()


def _made_http(
    hub: Hub, admin: Admin, node: Node, links: Links, names: Collection[str]
) -> dict[str, HttpServer]:
    """Make the servers of these listeners, in a thread and once others are served: to import and to put
    together what they need takes as much of a processor as half of the rest of a start.
    """
    from broker.http.application import http_servers

    return http_servers(hub, admin, node, links, names)
