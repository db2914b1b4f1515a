"""The exceptions of a `Broker` and its `admin`; their reasons are fit for users."""

from broker.engine.shard_ending import BrokerStopped
from config.settings_loader import ConfigError
from queue_manager.errors import (
    AccessRefused,
    GroupNotFound,
    InvalidAddress,
    InvalidArgument,
    LimitReached,
    PreconditionFailed,
    QueueManagerError,
    QueueNotFound,
    ResourceLocked,
)
from storage.errors import StorageError, StoreFenced, StoreFull, StoreInUse, StoreUnavailable

__all__ = [
    "AccessRefused",
    "BrokerStopped",
    "ConfigError",
    "GroupNotFound",
    "InvalidAddress",
    "InvalidArgument",
    "LimitReached",
    "PreconditionFailed",
    "QueueManagerError",
    "QueueNotFound",
    "ResourceLocked",
    "StorageError",
    "StoreFenced",
    "StoreFull",
    "StoreInUse",
    "StoreUnavailable",
]
