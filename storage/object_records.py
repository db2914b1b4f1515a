"""Small records in an object store, each changed only by who knows what it replaces (If-Match).

Every request is sent once, and ends in time. What did not answer may have been done, now or later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import ObjectStore, from_url

from config import limits
from storage.errors import StorageError, StoreUnavailable
from storage.place import DATABASE, s3_options

_REFUSED: Final = (AlreadyExistsError, PreconditionError)
_ABSENT: Final = (FileNotFoundError, NotFoundError)
_T = TypeVar("_T")


class Tag(NamedTuple):
    """What an object store calls one content of one object; another content never has the same."""

    e_tag: str | None
    version: str | None


class Stored(NamedTuple):
    """What an object holds."""

    content: bytes
    tag: Tag


class ObjectRecords:
    """The records below a URL, with the credentials of the environment, as of `storage.place`."""

    def __init__(self, url: str, folder: str, timeout_s: float) -> None:
        """Take the store that the URL and the environment name. Raises StorageError if they name none."""
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        self._timeout_s = timeout_s
        self._url = f"{scheme}://{bucket}/{prefix.strip('/') or DATABASE}/{folder}"
        options: dict[str, Any] = s3_options(bucket) if scheme == "s3" else {}
        is_plain = options.pop("allow_http", "") == "true"
        try:
            self._store: ObjectStore = from_url(
                self._url,
                client_options={"timeout": timedelta(seconds=timeout_s), "allow_http": is_plain},
                retry_config={"max_retries": 0},  # a put that was done, repeated, looks like one refused
                **options,
            )
        except (BaseError, ValueError) as error:
            raise StorageError(f"opening {self._url}: {error}") from error

    async def get(self, key: str) -> Stored | None:
        """Return what is there. Raises StorageError."""
        try:
            return await self._answered(self._get(key), key)
        except _ABSENT:
            return None

    async def put(self, key: str, content: bytes, base: Tag | None) -> Tag | None:
        """Replace what has the tag `base`, or make what is not there; gives the new tag, None if something
        else is there.

        Raises StorageError: then it may have been done, or be done later.
        """
        try:
            return await self._answered(self._put(key, content, base), key)
        except _REFUSED:
            return None
        except _ABSENT as error:
            raise StoreUnavailable(f"{self._url}: there is no such bucket") from error

    async def delete(self, key: str) -> None:
        """Delete what is there, if anything is. Raises StorageError."""
        try:
            await self._answered(obstore.delete_async(self._store, key), key)
        except _ABSENT:
            pass

    async def _get(self, key: str) -> Stored:
        found = await obstore.get_async(self._store, key)
        if found.meta["size"] > limits.NODE_RECORD_BYTES_MAX:
            raise StorageError(f"{self._url}/{key} has {found.meta['size']} bytes, which is none of ours")
        content = bytes(await found.bytes_async())
        return Stored(content, Tag(found.meta["e_tag"], found.meta["version"]))

    async def _put(self, key: str, content: bytes, base: Tag | None) -> Tag:
        if base is None:
            done = await obstore.put_async(self._store, key, content, mode="create")
        else:
            known = {name: value for name, value in base._asdict().items() if value is not None}
            done = await obstore.put_async(self._store, key, content, mode=known)  # type: ignore[arg-type]
        return Tag(done["e_tag"], done["version"])

    async def _answered(self, request: Awaitable[_T], key: str) -> _T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await request
        except TimeoutError:
            raise StoreUnavailable(f"{self._url}/{key}: no answer in {self._timeout_s:g} s") from None
        except (*_REFUSED, *_ABSENT):
            raise
        except BaseError as error:
            raise StoreUnavailable(f"{self._url}/{key}: {str(error).splitlines()[0]}") from error
