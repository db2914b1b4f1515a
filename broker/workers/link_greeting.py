"""How the ends of a link greet: each says who it is, which versions of links it speaks, and which types it
declares.

A link speaks the older of the two versions. Who is one version ahead speaks that of the release before, too;
who is further ahead is refused, by whichever end. What the frames of greetings look like stays the same for
good: a map, to which keys may be added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from broker.engine.shard_ending import WorkerLost
from broker.version import VERSION
from broker.workers.link_codec import Table, Unreadable

LINK_VERSION: Final = 1
"""To be raised by a release whose links have something that is more than a field with a default."""


class LinkRefused(WorkerLost):
    """The ends of a link speak no version that both know."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What one end says of itself: `oldest` is the oldest version that it speaks, `table` has its types.
    `epoch` rises each time that the shard of this worker is given to a node.
    """

    worker: int
    table: Table
    epoch: int = 0
    version: int = LINK_VERSION
    oldest: int = LINK_VERSION - 1
    release: str = VERSION

    def told(self) -> dict[str, Any]:
        """Return it as it goes over a link."""
        return {
            "worker": self.worker,
            "epoch": self.epoch,
            "version": self.version,
            "oldest": self.oldest,
            "release": self.release,
            "table": self.table,
        }


def heard(told: Any) -> Greeting:
    """Return the greeting that came over a link. Raises Unreadable."""
    try:
        table = {str(name): [str(each) for each in fields] for name, fields in told["table"].items()}
        numbers = told["worker"], told.get("epoch", 0), told["version"], told["oldest"]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError(f"{numbers} are no numbers of a worker and of versions")
        worker, epoch, version, oldest = numbers
        return Greeting(worker, table, epoch, version, oldest, str(told["release"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"a greeting: {error!r}") from None


def agreed(own: Greeting, other: Greeting) -> int:
    """Return the version that both ends speak. Raises LinkRefused."""
    version = min(own.version, other.version)
    if version < max(own.oldest, other.oldest):
        raise LinkRefused(
            f"links of worker {own.worker} ({own.release}) are of version {own.version}, those of worker "
            f"{other.worker} ({other.release}) of {other.version}: they may be one apart"
        )
    return version
