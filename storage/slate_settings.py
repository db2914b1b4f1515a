"""How SlateDB is set up for a broker: many small commits, one writer, bounded memory.

- flush_interval null: every write flushes the log itself; a timer would only split commits.
- object_store_max_retries null: a log write that gives up ends the database for good. So the library keeps
  trying, and it is the calls of `SlateStore` that end in time.
- l0_max_ssts and l0_max_ssts_per_key 32: room for 512 MB of tables before writes wait for the compactor.
  Both, because every table overlaps with every other on the keys of counters.
- manifest and compactor polls 1 s on a local disk, 10 s elsewhere: they notice that there is room again.
  Locally one is a look into a directory; elsewhere each is a request that costs.
- max_unflushed_bytes 96 MiB, l0_sst_size_bytes 16 MiB, one compaction of one part at a time: memory.
- garbage collection every 15 s of what is 30 s old: a busy broker makes hundreds of log objects a second, and
  the library's own rules (10 and 5 minutes) would let half a million pile up in one directory. Where we
  fsync, the library collects nothing by itself: it goes by age and knows nothing of what is on disk
  (`storage.local_garbage`).
- checkpoint_lifetime: tables that a compaction replaced are kept so long for readers of older manifests. Ours
  are calls that end within seconds; the library's 15 minutes would be gigabytes under load.
- boundary_files_enabled only far away: the library cannot rewrite a file on a local disk as they need it, so
  that after the first time no manifest would ever be collected.
"""

import json
from typing import Any, Final

from slatedb.uniffi import Settings

from config import limits
from storage.errors import StorageError

_COMPACTED_TABLE_BYTES: Final = 64 * limits.MIB
_FETCH_BYTES: Final = limits.MIB


def broker_settings(*, local: bool, collects_garbage: bool = True, is_leased: bool = False) -> Settings:
    """Return the settings for a local disk (or memory), or for an object store far away.

    Without `collects_garbage` nothing is deleted unless `Admin.run_gc_once` is called. `is_leased`: garbage
    is kept for longer, so that a fence is there for longer than a lease can be renewed.

    Raises StorageError if a name is unknown to this SlateDB: it would ignore it silently.
    """
    poll = "1s" if local else "10s"
    age_s = limits.STORE_LEASED_GARBAGE_AGE_MIN_S if is_leased else limits.STORE_GARBAGE_AGE_MIN_S
    collect = {
        "interval": f"{limits.STORE_GARBAGE_INTERVAL_S}s",
        "min_age": f"{age_s}s",
        "dry_run": False,
    }
    wanted: dict[str, Any] = {
        "flush_interval": None,
        "object_store_max_retries": None,
        "manifest_poll_interval": poll,
        "l0_sst_size_bytes": limits.STORE_TABLE_BYTES,
        "l0_max_ssts": limits.STORE_TABLES_LEVEL0_MAX,
        "l0_max_ssts_per_key": limits.STORE_TABLES_LEVEL0_MAX,
        "l0_flush_parallelism": 1,
        "max_unflushed_bytes": limits.STORE_UNFLUSHED_BYTES_MAX,
        "compactor_options.poll_interval": poll,
        "compactor_options.max_concurrent_compactions": 1,
        "compactor_options.worker.max_concurrent_compactions": 1,
        "compactor_options.worker.compactions_poll_interval": poll,
        "compactor_options.worker.max_sst_size": _COMPACTED_TABLE_BYTES,
        "compactor_options.worker.bytes_to_fetch": _FETCH_BYTES,
        "compactor_options.worker.max_fetch_tasks": 2,
        "compactor_options.worker.max_subcompactions": 1,
        "compactor_options.checkpoint_lifetime": f"{limits.STORE_COMPACTED_AGE_MIN_S}s",
    }
    if collects_garbage:
        wanted |= {
            "garbage_collector_options.boundary_files_enabled": not local,
            "garbage_collector_options.wal_options": collect,
            "garbage_collector_options.compacted_options": collect,
            "garbage_collector_options.manifest_options": collect,
            "garbage_collector_options.compactions_options": collect,
        }
    else:
        wanted["garbage_collector_options"] = None
    settings = Settings.default()
    for name, value in wanted.items():
        settings.set(name, json.dumps(value))
    _verify(json.loads(settings.to_json_string()), wanted)
    return settings


def _verify(actual: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        found: Any = actual
        for part in name.split("."):
            if not isinstance(found, dict) or part not in found:
                raise StorageError(f"this SlateDB knows no setting {name}")
            found = found[part]
        if found != value:
            raise StorageError(f"SlateDB made {found!r} of the setting {name}={value!r}")
