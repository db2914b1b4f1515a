"""`sluicemq doctor`: whether a broker would do well here, and what to do where not."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final

import typer

from broker.access.loopback import is_loopback_host
from broker.clock import Clock
from broker.commands.doctor_remote import Finding, finding, look_at
from broker.commands.http_api import Api, AsJson, PasswordStdin, User
from broker.commands.printing import EXIT_REFUSED, print_json, print_table
from broker.version import VERSION
from config import limits
from config.settings import Settings
from config.settings_loader import ConfigError, load_settings
from config.users_file import load_users
from storage.errors import StorageError

_ROOM_BYTES_MIN: Final = 1024 * limits.MIB
_OPEN_FILES_WANTED: Final = 4_096
_SYNC_SECONDS: Final = 0.3
_SYNC_MS_MAX: Final = 30.0
_CERTIFICATE_DAYS_MIN: Final = 14
_YEAR_MIN: Final = 2025
_AHEAD_S_MAX: Final = 60
_PASSING: Final = frozenset(("tmpfs", "ramfs"))
_FAR: Final = frozenset(("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"))


def doctor(
    config: Annotated[Path | None, typer.Option(help="The broker's configuration file.")] = None,
    url: Annotated[
        str | None, typer.Option(help="Look at the broker with this HTTP listener, not at this machine.")
    ] = None,
    user: User = None,
    password_stdin: PasswordStdin = False,
    as_json: AsJson = False,
) -> None:
    """Look whether a broker would do well here: storage, ports, users, limits, clock; or (`--url`) how one
    does that runs. Exit 1 if not well.
    """
    findings = _here(config) if url is None else list(look_at(Api(url, user, password_stdin)))
    if as_json:
        print_json(findings)
    else:
        columns = (("state", ""), ("what", "WHAT"), ("found", "FOUND"), ("do", "DO"))
        rows = [{**each, "state": "ok" if each["ok"] else "!!"} for each in findings]
        print_table(columns, rows)
    if not all(each["ok"] for each in findings):
        raise typer.Exit(EXIT_REFUSED)


def _here(config: Path | None) -> list[Finding]:
    findings = [*_versions(), _open_files(), _clock()]
    try:
        settings = load_settings(config)
    except ConfigError as error:
        return [*findings, finding("configuration", "; ".join(error.problems), "mend the file")]
    findings.append(finding("configuration", str(config or "defaults")))
    return [
        *findings,
        *_storage(settings),
        *_storage_keys(settings),
        *_ports(settings),
        *_users(settings),
        *_certificates(settings),
    ]


def _versions() -> Iterator[Finding]:
    found = f"SluiceMQ {VERSION}, Python {platform.python_version()}, {platform.system()}"
    yield finding("versions", found, "" if sys.version_info >= (3, 11) else "Python 3.11 or later")
    for requirement in _pinned():
        name, _, wanted = requirement.partition("==")
        there = metadata.version(name)
        do = (
            ""
            if there == wanted
            else f"pip install {requirement}: it stores the data, and is made for one release"
        )
        yield finding(name, there, do)


def _pinned() -> list[str]:
    """Return the requirements of exactly one release."""
    try:
        requirements = metadata.requires("sluicemq") or []
    except metadata.PackageNotFoundError:  # run from a folder
        return []
    return [each.partition(";")[0].strip() for each in requirements if "==" in each.partition(";")[0]]


def _open_files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return finding("open files", "no limit")
    wanted = limits.CONNECTIONS_MAX
    do = "" if hard >= _OPEN_FILES_WANTED else f"ulimit -n {wanted}, or LimitNOFILE= of the service"
    return finding("open files", f"{hard} at most", do)


def _clock() -> Finding:
    now = datetime.fromtimestamp(Clock().now_ms() / 1000, UTC)
    do = "" if now.year >= _YEAR_MIN else "set it: messages expire and are scheduled by it"
    return finding("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC", do)


# storage


def _storage(settings: Settings) -> Iterator[Finding]:
    url = settings.storage.url
    if url == "memory:":
        yield finding("storage", "memory: nothing survives a restart")
    elif "://" in url:
        yield _object_store(url)
    else:
        yield from _directory(Path(url), settings)


def _storage_keys(settings: Settings) -> Iterator[Finding]:
    encryption = settings.storage.encryption
    if encryption is None:
        return
    from storage.sealing.key_sources import read_key  # with cryptography

    for key in encryption.keys:
        if not key.file:
            yield finding(f"storage key {key.id}", f"wrapped by {key.url or key.command[0]}")
            continue
        try:
            read_key(key)
        except StorageError as error:
            yield finding(f"storage key {key.id}", error.reason, "mend storage.encryption, or the file")
        else:
            yield _private(f"storage key {key.id}", Path(key.file), key.file)


def _object_store(url: str) -> Finding:
    from storage.open import open_remote_reader  # brings the store along

    async def look() -> bool:
        reader = await open_remote_reader(url)
        if reader is not None:
            await reader.shutdown()
        return reader is not None

    try:
        has_database = asyncio.run(look())
    except StorageError as error:
        return finding("storage", error.reason, "check the address, AWS_... and the like, and the network")
    return finding("storage", f"{url}: {'has a database' if has_database else 'empty'}")


def _directory(directory: Path, settings: Settings) -> Iterator[Finding]:
    from storage.open import storage_holder

    place = directory
    while not place.exists():
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
        probe = place / f".sluicemq-doctor-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        yield finding("storage", f"{place}: {error.strerror}", "let the broker write there")
        return
    holder = storage_holder(settings.storage)
    found = f"{directory}: {free // limits.MIB} MiB free" + (f", in use by {holder}" if holder else "")
    do = "" if free >= _ROOM_BYTES_MIN else "make room, or use another disk"
    yield finding("storage", found, do)
    yield _file_system(place)
    if settings.storage.sync == "always":
        yield _sync(place)
    if directory.exists():
        yield _ages(directory)


def _file_system(place: Path) -> Finding:
    kind = _file_system_kind(place)
    do = ""
    if kind in _PASSING:
        do = "use a disk: this is memory, and gone with a restart of the machine"
    elif kind in _FAR:
        do = "use a local disk, or an object store: locks and syncs may not hold over a network"
    return finding("file system", kind or "unknown", do)


def _file_system_kind(place: Path) -> str:
    """Return the type of the mount that a path is on; "" where that cannot be told."""
    best, kind = "", ""
    try:
        lines = Path("/proc/mounts").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    path = str(place.resolve())
    for line in lines:
        _, mount, found, *_ = line.split()
        if len(mount) >= len(best) and (path + "/").startswith(mount.rstrip("/") + "/"):
            best, kind = mount, found
    return kind


def _sync(place: Path) -> Finding:
    from broker.commands.bench_clients import ClientError
    from broker.commands.bench_measures import sync_times

    try:
        times = sync_times(place, _SYNC_SECONDS)
    except ClientError as error:
        return finding("disk sync", str(error), "let the broker write there")
    slow = times.p50_ms > _SYNC_MS_MAX
    do = "a message alone is confirmed no faster than that: use a faster disk" if slow else ""
    return finding("disk sync", f"{times.p50_ms:.2f} ms (99 %: {times.p99_ms:.2f} ms)", do)


def _ages(directory: Path) -> Finding:
    """Check whether the clock was ahead when the storage was written."""
    newest = max((path.stat().st_mtime for path in (directory, *directory.glob("*"))), default=0.0)
    ahead_s = newest - Clock().now_ms() / 1000
    if ahead_s > _AHEAD_S_MAX:
        do = "check the clock: it went back, and what expires or is scheduled comes late"
        return finding("storage time", f"written {ahead_s:.0f} s from now", do)
    return finding("storage time", f"written {max(0, -ahead_s):.0f} s ago")


# the rest of the configuration


def _ports(settings: Settings) -> Iterator[Finding]:
    from broker.network.tcp_ports import has_port
    from storage.open import storage_holder_pid

    holder = storage_holder_pid(settings.storage)
    for name, listener in settings.listeners.opened().items():
        address = f"{listener.bind}:{listener.port}"
        try:
            family = socket.AF_INET6 if ":" in listener.bind else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((listener.bind, listener.port))
        except OSError as error:
            if holder and has_port(holder, listener.port):
                found = f"{address}: of the broker that has the storage, process {holder}"
                yield finding(f"port {name}", found)
                continue
            do = f"end what has it (a broker that runs already?), or set listeners.{name}.port"
            yield finding(f"port {name}", f"{address}: {error.strerror}", do)
        else:
            yield finding(f"port {name}", f"{address} is free")


def _users(settings: Settings) -> Iterator[Finding]:
    access = settings.access
    if not access.users_file:
        yield _without_users_file(settings)
        return
    path = Path(access.users_file)
    try:
        count = len(load_users(path).users)
    except ConfigError as error:
        yield finding("users", "; ".join(error.problems), "mend the file")
        return
    yield _private("users", path, f"{path}: {count} users")


def _without_users_file(settings: Settings) -> Finding:
    access = settings.access
    if access.anonymous == "always" or access.jwt or access.ldap or access.http:
        return finding("users", "no users file, others know them")
    opened = settings.listeners.opened().items()
    others = ", ".join(name for name, listener in opened if not is_loopback_host(listener.bind))
    do = f"sluicemq user add, and access.users_file: {others} lets in nobody from elsewhere" if others else ""
    return finding("users", "no users file: clients on this machine only", do)


def _certificates(settings: Settings) -> Iterator[Finding]:
    tls = settings.listeners.with_tls()
    if not tls:
        return
    from cryptography import x509

    from broker.network.tls.contexts import TlsContexts

    try:
        TlsContexts(tls)
    except ConfigError as error:
        yield finding("certificates", "; ".join(error.problems), "mend listeners, or the files")
        return
    for name, files in tls.items():
        ends = x509.load_pem_x509_certificates(Path(files.cert).read_bytes())[0].not_valid_after_utc
        days = (ends.timestamp() - Clock().now_ms() / 1000) / 86_400
        do = "renew it, and reload the broker" if days < _CERTIFICATE_DAYS_MIN else ""
        yield finding(f"certificate {name}", f"until {ends:%Y-%m-%d}, {days:.0f} days", do)
        yield _private(f"key {name}", Path(files.key), files.key)


def _private(what: str, path: Path, found: str) -> Finding:
    """Check that others may not read a file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    return finding(what, found, f"chmod 600 {path}: others can read it" if mode & 0o007 else "")
