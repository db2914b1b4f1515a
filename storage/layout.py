"""The numbers of the record layout: record types, queue IDs, and how claim and bucket IDs are made.

Every key of a queue or payload record begins `01 TT` (layout version, record type). The metadata log beside
them begins `03 01` (see `storage.metadata_log`), so the two never meet in one database.
"""

from typing import Final

from config import limits
from storage.encoding import encode_terminated, pack_u64_key

VERSION: Final = 0x01

PAYLOAD: Final = 0x01
ACTIVE: Final = 0x02
DONE: Final = 0x03
FAILED: Final = 0x04
ATTEMPTS: Final = 0x05
QUEUE_SPEC: Final = 0x06
MESSAGE_IDS: Final = 0x07
LOG_CURSOR: Final = 0x08
CLAIM_STATE: Final = 0x09
PAYLOAD_REFS: Final = 0x0A
GROUP_POSITION: Final = 0x0B
QUEUE_META: Final = 0x0C
REMOVAL: Final = 0x0D
SCHEDULED: Final = 0x0E
FORMAT: Final = 0x0F
IDENTIFIED: Final = 0x10
PRODUCER: Final = 0x11
EXPIRY: Final = 0x12
STREAM_CHUNK: Final = 0x13
QUEUE_ACCOUNT: Final = 0x14
CLAIMED_BITMAP: Final = 0x15
STAGED_ROWS: Final = 0x17
COMMITTED_EPOCH: Final = 0x18
EPOCH: Final = 0x19
EXCHANGE: Final = 0x1A
BINDING: Final = 0x1B
GROUP_REMOVAL: Final = 0x1C
SKIPPED_OFFSETS: Final = 0x1D
RELEASED_OFFSETS: Final = 0x1E
JOURNAL_STATE: Final = 0x1F
HOLDER: Final = 0x20
SETTLEMENTS: Final = 0x21
VHOST: Final = 0x22
SESSION: Final = 0x28
SESSION_SUBSCRIPTION: Final = 0x29
SESSION_PROGRESS: Final = 0x2A
SESSION_RECEIVED: Final = 0x2B
FILTER_LOG: Final = 0x2C
FILTER_LOG_ENTRY: Final = 0x2D
RETAINED: Final = 0x2E
SESSION_WILL: Final = 0x2F

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


def record_prefix(record_type: int) -> bytes:
    """The two bytes every key of this type begins with."""
    return bytes((VERSION, record_type))


def queue_prefix(record_type: int, queue_id: str) -> bytes:
    """`01 TT ‖ TB(queue)`: what the keys of one queue's records of this type begin with."""
    return bytes((VERSION, record_type)) + encode_terminated(queue_id.encode())


def bucket_key(record_type: int, queue_id: str, bucket_id: int) -> bytes:
    """`01 TT ‖ TB(queue) ‖ bucket u64BE`: the key of an active, done or failed bucket."""
    return queue_prefix(record_type, queue_id) + pack_u64_key(bucket_id)


def check_queue_id(queue_id: str) -> str:
    """The queue ID as given; ValueError if it is empty, too long or has a NUL in it."""
    size = len(queue_id.encode())
    if not 1 <= size <= QUEUE_ID_BYTES_MAX:
        raise ValueError(f"a queue ID has 1 to {QUEUE_ID_BYTES_MAX} bytes, this one {size}")
    if "\x00" in queue_id:
        raise ValueError("a queue ID has no NUL")
    return queue_id


def group_queue_id(name: str, group: str) -> str:
    """The queue ID of a group: the queue's name for the default group (`""`), else `name \\x1f group`."""
    if GROUP_SEPARATOR in name or GROUP_SEPARATOR in group:
        raise ValueError("queue and group names may not contain U+001F")
    return check_queue_id(f"{name}{GROUP_SEPARATOR}{group}" if group else name)


def split_group_queue_id(queue_id: str) -> tuple[str, str]:
    """The (queue name, group) a queue ID was made from; the group is `""` for the default group."""
    name, _, group = queue_id.partition(GROUP_SEPARATOR)
    return name, group


def bucket_capacity(exponent: int) -> int:
    """How many messages a bucket of this exponent holds."""
    return _CAPACITIES[exponent]


def make_id(exponent: int, number: int) -> int:
    """A claim or bucket ID: the exponent in the top four bits, the number in the low 60."""
    if not 0 <= exponent <= 15:
        raise ValueError(f"bucket exponent {exponent}")
    if not 0 <= number <= NUMBER_MASK:
        raise ValueError(f"number {number} does not fit {NUMBER_BITS} bits")
    return exponent << NUMBER_BITS | number


def id_exponent(claim_or_bucket_id: int) -> int:
    """The bucket exponent in a claim or bucket ID."""
    return claim_or_bucket_id >> NUMBER_BITS


def id_number(claim_or_bucket_id: int) -> int:
    """The number in a claim or bucket ID. A queue's order is the order of claim numbers, not of whole IDs."""
    return claim_or_bucket_id & NUMBER_MASK


def bucket_of_claim(claim_id: int) -> int:
    """The ID of the bucket a claim lies in, for its whole life: active, done and failed alike."""
    number = claim_id & NUMBER_MASK
    return claim_id - number % _CAPACITIES[claim_id >> NUMBER_BITS]


def align_claim_number(number: int, exponent: int) -> int:
    """The first number >= `number` that begins a bucket; the counter goes on there in a new exponent."""
    capacity = _CAPACITIES[exponent]
    return -(-number // capacity) * capacity


def check_bucket_exponent(exponent: int) -> int:
    """The exponent as given; ValueError unless a bucket of it can be encoded."""
    if not 0 <= exponent <= BUCKET_EXPONENT_MAX:
        raise ValueError(f"bucket exponent must be 0 to {BUCKET_EXPONENT_MAX}, not {exponent}")
    return exponent
