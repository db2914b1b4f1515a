"""What every `Store` must do, as checks to run on each of them.

A check takes an opener: each call opens the *same* database and gives a `Store`. At first the database is
empty, and a check closes what it opened before it opens again. Usage:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_conformance(check, opener):
        await check(opener)
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from storage.batch import WriteOps
from storage.errors import StorageError
from storage.store import Store

Opener = Callable[[], Awaitable[Store]]


def batch(puts: dict[bytes, bytes], *deletes: bytes) -> WriteOps:
    ops = WriteOps()
    for key, value in puts.items():
        ops.put(key, value)
    for key in deletes:
        ops.delete(key)
    return ops


async def check_absent_key_is_none(opener: Opener) -> None:
    store = await opener()
    assert await store.get(b"nothing") is None
    await store.close()


async def check_put_then_get(opener: Opener) -> None:
    store = await opener()
    await store.write(batch({b"\x01\x01a": b"value", b"\x01\x01b": bytes(range(256))}))
    assert await store.get(b"\x01\x01a") == b"value"
    assert await store.get(b"\x01\x01b") == bytes(range(256))
    await store.close()


async def check_empty_value_is_not_absent(opener: Opener) -> None:
    store = await opener()
    await store.write(batch({b"listed": b""}))
    assert await store.get(b"listed") == b""
    assert await store.scan(b"l", b"m", limit=10) == [(b"listed", b"")]
    await store.close()


async def check_get_many_gives_values_in_the_order_asked(opener: Opener) -> None:
    store = await opener()
    await store.write(batch({b"a": b"first", b"b": b"", b"c": b"third"}))
    assert await store.get_many([b"c", b"nothing", b"a", b"b"]) == [b"third", None, b"first", b""]
    assert await store.get_many([]) == []
    await store.close()


async def check_put_replaces(opener: Opener) -> None:
    store = await opener()
    await store.write(batch({b"k": b"first"}))
    await store.write(batch({b"k": b"second"}))
    assert await store.get(b"k") == b"second"
    assert await store.scan(b"k", None, limit=10) == [(b"k", b"second")]
    await store.close()


async def check_delete(opener: Opener) -> None:
    store = await opener()
    await store.write(batch({b"a": b"1", b"b": b"2", b"c": b"3"}))
    await store.write(batch({}, b"b", b"never there"))
    assert await store.get(b"b") is None
    assert await store.scan(b"a", None, limit=10) == [(b"a", b"1"), (b"c", b"3")]
    await store.close()


async def check_deleted_key_can_be_put_again(opener: Opener) -> None:
    store = await opener()
    await store.write(batch({b"k": b"1"}))
    await store.write(batch({}, b"k"))
    await store.write(batch({b"k": b"2"}))
    assert await store.scan(b"", None, limit=10) == [(b"k", b"2")]
    await store.close()


async def check_batch_of_puts_and_deletes(opener: Opener) -> None:
    store = await opener()
    await store.write(batch({b"a": b"1", b"b": b"2"}))
    await store.write(batch({b"c": b"3"}, b"a"))
    assert await store.scan(b"", None, limit=10) == [(b"b", b"2"), (b"c", b"3")]
    await store.close()


async def check_empty_batch(opener: Opener) -> None:
    store = await opener()
    await store.write(WriteOps())
    assert await store.scan(b"", None, limit=10) == []
    await store.close()


async def check_batch_may_be_changed_after_the_write(opener: Opener) -> None:
    store = await opener()
    ops = batch({b"k": b"kept"})
    await store.write(ops)
    ops.puts.clear()
    ops.put(b"k", b"not written")
    assert await store.get(b"k") == b"kept"
    await store.close()


async def check_scan_bounds_are_half_open(opener: Opener) -> None:
    store = await opener()
    await store.write(batch({bytes((n,)): b"" for n in range(1, 10)}))

    async def keys(start: bytes, end: bytes | None, limit: int = 100) -> list[int]:
        return [key[0] for key, _ in await store.scan(start, end, limit=limit)]

    assert await keys(b"\x03", b"\x06") == [3, 4, 5]
    assert await keys(b"\x03\x00", b"\x06\x00") == [4, 5, 6]
    assert await keys(b"\x07", None) == [7, 8, 9]
    assert await keys(b"\x04", b"\x05") == [4]
    assert await keys(b"\x0a", None) == []
    assert await keys(b"", b"\x01") == []
    await store.close()


async def check_scan_of_an_empty_range(opener: Opener) -> None:
    store = await opener()
    await store.write(batch({b"a": b"", b"b": b""}))
    assert await store.scan(b"a", b"a", limit=10) == []
    assert await store.scan(b"b", b"a", limit=10) == []
    assert await store.scan(b"b", b"a", limit=10, reverse=True) == []
    await store.close()


async def check_scan_orders_by_unsigned_bytes(opener: Opener) -> None:
    store = await opener()
    keys = [b"\x01", b"\x01\x00", b"\x01\xff", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
    await store.write(batch({key: key for key in reversed(keys)}))
    assert [key for key, _ in await store.scan(b"\x01", None, limit=100)] == keys
    await store.close()


async def check_scan_limit(opener: Opener) -> None:
    store = await opener()
    await store.write(batch({b"k%03d" % n: b"%d" % n for n in range(200)}))
    assert await store.scan(b"k", None, limit=3) == [(b"k000", b"0"), (b"k001", b"1"), (b"k002", b"2")]
    assert len(await store.scan(b"k", None, limit=1_000)) == 200
    assert await store.scan(b"k", None, limit=0) == []
    await store.close()


async def check_reverse_scan(opener: Opener) -> None:
    store = await opener()
    await store.write(batch({b"k%03d" % n: b"" for n in range(200)}))
    assert [key for key, _ in await store.scan(b"k010", b"k014", limit=10, reverse=True)] == [
        b"k013",
        b"k012",
        b"k011",
        b"k010",
    ]
    assert await store.scan(b"k", None, limit=1, reverse=True) == [(b"k199", b"")]
    assert await store.scan(b"k", b"k100", limit=1, reverse=True) == [(b"k099", b"")]
    await store.close()


async def check_written_rows_survive_a_reopen(opener: Opener) -> None:
    store = await opener()
    await store.write(batch({b"kept": b"1", b"dropped": b"2"}))
    await store.write(batch({}, b"dropped"))
    await store.close()
    store = await opener()
    assert await store.scan(b"", None, limit=10) == [(b"kept", b"1")]
    await store.close()


async def check_concurrent_writes_all_land(opener: Opener) -> None:
    store = await opener()
    await asyncio.gather(*(store.write(batch({b"w%02d" % n: b"%d" % n})) for n in range(50)))
    assert [key for key, _ in await store.scan(b"w", None, limit=100)] == [b"w%02d" % n for n in range(50)]
    await store.close()


async def check_last_of_several_writes_begun_in_order_wins(opener: Opener) -> None:
    store = await opener()
    await asyncio.gather(*(store.write(batch({b"k": b"%d" % n})) for n in range(20)))
    assert await store.get(b"k") == b"19"
    await store.close()


async def check_big_values_and_long_keys(opener: Opener) -> None:
    store = await opener()
    value = bytes(range(256)) * 4_096  # 1 MiB
    key = b"k" * 600
    await store.write(batch({key: value}))
    assert await store.get(key) == value
    await store.close()


async def check_many_rows_in_one_batch(opener: Opener) -> None:
    store = await opener()
    rows = {b"\x01\x01" + n.to_bytes(8, "big"): b"%d" % n for n in range(5_000)}
    await store.write(batch(rows))
    assert await store.scan(b"\x01\x01", b"\x01\x02", limit=10_000) == list(rows.items())
    await store.write(batch({}, *list(rows)[:4_990]))
    assert await store.scan(b"\x01\x01", b"\x01\x02", limit=10_000) == list(rows.items())[4_990:]
    await store.close()


async def check_closed_store_refuses(opener: Opener) -> None:
    store = await opener()
    await store.close()
    await store.close()
    with pytest.raises(StorageError):
        await store.get(b"k")
    with pytest.raises(StorageError):
        await store.scan(b"k", None, limit=1)
    with pytest.raises(StorageError):
        await store.write(batch({b"k": b""}))


async def check_describe_is_one_line(opener: Opener) -> None:
    store = await opener()
    text = store.describe()
    assert text
    assert "\n" not in text
    await store.close()


CHECKS: list[Callable[[Opener], Awaitable[None]]] = [
    check_absent_key_is_none,
    check_put_then_get,
    check_empty_value_is_not_absent,
    check_get_many_gives_values_in_the_order_asked,
    check_put_replaces,
    check_delete,
    check_deleted_key_can_be_put_again,
    check_batch_of_puts_and_deletes,
    check_empty_batch,
    check_batch_may_be_changed_after_the_write,
    check_scan_bounds_are_half_open,
    check_scan_of_an_empty_range,
    check_scan_orders_by_unsigned_bytes,
    check_scan_limit,
    check_reverse_scan,
    check_written_rows_survive_a_reopen,
    check_concurrent_writes_all_land,
    check_last_of_several_writes_begun_in_order_wins,
    check_big_values_and_long_keys,
    check_many_rows_in_one_batch,
    check_closed_store_refuses,
    check_describe_is_one_line,
]
