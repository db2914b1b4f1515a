"""The `cluster` section: several brokers on one object store."""

from typing import Annotated

from pydantic import AfterValidator, Field

from config import limits
from config.field_types import DurationMs, Section


def _check_lease(value: int) -> int:
    if value < limits.LEASE_MS_MIN:
        raise ValueError(f"must be at least {limits.LEASE_MS_MIN} ms")
    if value * limits.LEASES_WITHIN_GARBAGE_AGE >= 1_000 * limits.STORE_LEASED_GARBAGE_AGE_MIN_S:
        raise ValueError(
            f"{limits.LEASES_WITHIN_GARBAGE_AGE} leases must be shorter than"
            f" {limits.STORE_LEASED_GARBAGE_AGE_MIN_S} s, the age at which what fences a broker may be"
            " deleted from the object store as garbage"
        )
    return value


class ClusterSettings(Section):
    """Brokers that stand in for each other."""

    lease_ms: Annotated[DurationMs, AfterValidator(_check_lease)] = Field(
        default=5_000, validation_alias="lease"
    )
    """For how long a broker may deliver and confirm after it has last renewed its lease on the storage, in
    ms; one that waits takes over after as much silence.
    """
