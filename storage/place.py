"""Where a database lies: in an object store, its log maybe in another one that answers sooner.

Which one that is stands in the database itself (`log_place`), in its tables, so that whoever opens it finds
what was confirmed last.
"""

import asyncio
import contextlib
import os
from dataclasses import dataclass
from typing import Final

from slatedb.uniffi import (
    Admin,
    AdminBuilder,
    DbReader,
    DbReaderBuilder,
    Error,
    ObjectStore,
    ObjectStoreBuilder,
    ObjectStoreType,
    ReaderMode,
    ReaderOptions,
)

from config import limits
from storage.errors import StorageError
from storage.records import LogPlace, log_place
from storage.slate_errors import SLATE_ERRORS, answered, translate

DATABASE: Final = "db"
"""The database's folder below a local path, and its prefix where a bucket's URL has none."""

LOG_VARIABLES: Final = "LOG_"
"""What stands before the names of variables that are for the store of the log alone."""

_SCHEMES: Final = {
    "s3": ObjectStoreType.S3,
    "gs": ObjectStoreType.GCS,
    "az": ObjectStoreType.AZURE,
}
_BUCKET_KEY: Final = {"s3": "bucket", "gs": "google_bucket", "az": "azure_container_name"}
_OF_LOG: Final = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_REGION": "region",
}
_EXPRESS: Final = "--x-s3"  # ends the name of a bucket of S3 Express One Zone


@dataclass(frozen=True, slots=True)
class Place:
    """A database at `path` in a store, or in a directory taken for one. `log`, named by `log_url`, has its
    log if that lies elsewhere.
    """

    url: str
    path: str
    store: ObjectStore
    log_url: str = ""
    log: ObjectStore | None = None

    @classmethod
    def of(cls, url: str) -> "Place":
        """Return the place of a database that has its log beside it. Raises StorageError."""
        scheme, bucket, prefix = _parts(url)
        return cls(url, prefix.strip("/") or DATABASE, _object_store(scheme, bucket, url))

    def with_log(self, log_url: str) -> "Place":
        """Return the same with the log in the bucket that `log_url` names. Raises StorageError."""
        scheme, bucket, _ = _parts(log_url)
        if (scheme, bucket) == _parts(self.url)[:2]:
            return Place(self.url, self.path, self.store)
        log = _object_store(scheme, bucket, log_url, LOG_VARIABLES)
        return Place(self.url, self.path, self.store, f"{scheme}://{bucket}", log)

    def describe(self) -> str:
        """Describe where it lies, for logs."""
        return f"{self.url} (log in {self.log_url})" if self.log_url else self.url

    def admin(self) -> Admin:
        """Return the administration of the database."""
        builder = AdminBuilder(self.path, self.store)
        if self.log is not None:
            builder.with_wal_object_store(self.log)
        return builder.build()

    async def open_reader(self, look_ms: int, *, tables_only: bool = False) -> DbReader | None:
        """Open a reader beside the writer, which looks every `look_ms` for what is new; None when there is no
        database yet. `tables_only`: it reads no log.
        """
        builder = DbReaderBuilder(self.path, self.store)
        if self.log is not None:
            builder.with_wal_object_store(self.log)
        builder.with_reader_mode(ReaderMode.FOLLOW_LATEST())
        builder.with_options(
            ReaderOptions(
                manifest_poll_interval_ms=look_ms,
                checkpoint_lifetime_ms=limits.STORE_COMPACTED_AGE_MIN_S * 1_000,  # makes none
                max_memtable_bytes=limits.STORE_TABLE_BYTES,
                skip_wal_replay=tables_only,
            )
        )
        try:
            return await builder.build()
        except SLATE_ERRORS as error:
            if isinstance(error, Error.Data):
                return None  # no manifest; if it is a damaged one, the opening that follows says so
            raise translate(error, "opening") from error


def s3_options(bucket: str, variables: str = "") -> dict[str, str]:
    """Return what a client of S3 is told beside what it takes from the environment itself."""
    options: dict[str, str] = {}
    endpoint = (
        (variables and os.environ.get(f"{variables}AWS_ENDPOINT_URL"))
        or os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
    )
    if endpoint:
        options["endpoint"] = endpoint
        options["allow_http"] = "true" if endpoint.startswith("http://") else "false"
    if bucket.endswith(_EXPRESS):
        options["s3_express"] = "true"
    for name, key in _OF_LOG.items() if variables else ():
        if value := os.environ.get(variables + name):
            options[key] = value
    return options


async def open_located(
    place: Place, look_ms: int = limits.HOLD_LOOK_INTERVAL_MS
) -> tuple[Place, DbReader | None]:
    """Find where the log of a database lies, and open a reader; None when there is no database yet."""
    found, reader = await asyncio.gather(log_place_in_tables(place), place.open_reader(look_ms))
    if found is None or reader is None or found.url == place.log_url:
        return place, reader
    await close_reader(reader)
    place = place.with_log(found.url or place.url)
    return place, await place.open_reader(look_ms)


async def log_place_in_tables(place: Place) -> LogPlace | None:
    """Return what the tables of the database say of where its log lies; None: there is no database.

    What is only in a log does not count: while the log is being moved, the old one says where it goes before
    the tables have everything.
    """
    reader = await place.open_reader(limits.HOLD_LOOK_INTERVAL_MS, tables_only=True)
    if reader is None:
        return None
    try:
        async with answered("opening", limits.STORE_CALL_TIMEOUT_S):
            return decoded_log_place(await reader.get(log_place.key()))
    finally:
        await close_reader(reader)


def decoded_log_place(value: bytes | None) -> LogPlace:
    """Return what the record says, or its absence."""
    return LogPlace(0, "") if value is None else log_place.decode(value)


async def close_reader(reader: DbReader) -> None:
    """Let go of a reader; it has changed nothing, so nothing can be lost."""
    with contextlib.suppress(*SLATE_ERRORS):
        await reader.shutdown()


def _parts(url: str) -> tuple[str, str, str]:
    """Return scheme, bucket and prefix of an URL. Raises StorageError."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme not in _SCHEMES or not bucket:
        raise StorageError(f"opening: {url} names no storage that SluiceMQ knows")
    return scheme, bucket, prefix


def _object_store(scheme: str, bucket: str, url: str, variables: str = "") -> ObjectStore:
    """Return a store, with the credentials of the environment; those that begin with `variables` win."""
    try:
        builder = ObjectStoreBuilder.from_env(_SCHEMES[scheme])
        builder.with_config(_BUCKET_KEY[scheme], bucket)
        for key, value in (s3_options(bucket, variables) if scheme == "s3" else {}).items():
            builder.with_config(key, value)
        return builder.build()
    except SLATE_ERRORS as error:
        raise translate(error, f"opening {url}") from error
