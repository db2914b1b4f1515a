"""The common parts of records: their version, queue IDs, and how claim and bucket IDs are made.

Every key of `storage.records` begins `01 TT` (layout version, number of the record). The metadata log beside
them begins `03 01` (see `storage.metadata_log`), so the two never meet in one database.
"""

from typing import Final

from config import limits

VERSION: Final = 0x01
INDEX_NAME: Final = "backup.json"  # the file by which a directory is a backup

BUCKET_EXPONENT_MAX: Final = 4  # 10^5 elements would not fit an array's u16 count
BUCKET_EXPONENT_DEFAULT: Final = 2
_CAPACITIES: Final = tuple(int("1" + "0" * exponent) for exponent in range(16))
NUMBER_BITS: Final = 60  # of a claim or bucket ID; the exponent has the other four
NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1

LEVEL_SEPARATOR: Final = "\x1e"  # never part of a queue name
GROUP_SEPARATOR: Final = "\x1f"  # never part of a queue or group name
LEVEL_BYTES_MAX: Final = 3  # the separator and a priority
VHOST_BYTES_MAX: Final = limits.VHOST_NAME_BYTES_MAX + 1  # with the separator behind it
QUEUE_ID_BYTES_MAX: Final = (
    VHOST_BYTES_MAX + limits.QUEUE_NAME_BYTES_MAX + LEVEL_BYTES_MAX + 1 + limits.GROUP_NAME_BYTES_MAX
)


def check_queue_id(queue_id: str) -> str:
    """Return the queue ID as given; ValueError if it is empty, too long or has a NUL in it."""
    size = len(queue_id.encode())
    if not 1 <= size <= QUEUE_ID_BYTES_MAX:
        raise ValueError(f"a queue ID has 1 to {QUEUE_ID_BYTES_MAX} bytes, this one {size}")
    if "\x00" in queue_id:
        raise ValueError("a queue ID has no NUL")
    return queue_id


def group_queue_id(name: str, group: str) -> str:
    """Return the queue ID of a group: the queue's name for the default group (`""`), else
    `name \\x1f group`.
    """
    if GROUP_SEPARATOR in name or GROUP_SEPARATOR in group:
        raise ValueError("queue and group names may not contain U+001F")
    return check_queue_id(f"{name}{GROUP_SEPARATOR}{group}" if group else name)


def split_group_queue_id(queue_id: str) -> tuple[str, str]:
    """Return the (queue name, group) of a queue ID; the group is `""` for the default group."""
    name, _, group = queue_id.partition(GROUP_SEPARATOR)
    return name, group


def bucket_capacity(exponent: int) -> int:
    """Return how many messages a bucket of this exponent holds."""
    return _CAPACITIES[exponent]


def id_number(claim_or_bucket_id: int) -> int:
    """Return the number in a claim or bucket ID. A queue's order is the order of claim numbers, not of whole
    IDs.
    """
    return claim_or_bucket_id & NUMBER_MASK


def bucket_of_claim(claim_id: int) -> int:
    """Return the ID of the bucket a claim lies in, for its whole life: active, done and failed alike."""
    number = claim_id & NUMBER_MASK
    return claim_id - number % _CAPACITIES[claim_id >> NUMBER_BITS]


def align_claim_number(number: int, exponent: int) -> int:
    """Return the first number >= `number` that begins a bucket; the counter goes on there in a new
    exponent.
    """
    capacity = _CAPACITIES[exponent]
    return -(-number // capacity) * capacity


def check_bucket_exponent(exponent: int) -> int:
    """Return the exponent as given; ValueError unless a bucket of it can be encoded."""
    if not 0 <= exponent <= BUCKET_EXPONENT_MAX:
        raise ValueError(f"bucket exponent must be 0 to {BUCKET_EXPONENT_MAX}, not {exponent}")
    return exponent
