"""What the queue manager refuses, one class per reason; front-ends map them to wire codes."""

from __future__ import annotations


class QueueManagerError(Exception):
    """Base of everything the queue manager refuses. `reason` is fit for the peer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def at(self, place: str) -> QueueManagerError:
        """The same refusal, told where it was met."""
        found = type(self).__new__(type(self))
        QueueManagerError.__init__(found, f"{place}: {self.reason}")
        return found


class QueueNotFound(QueueManagerError):
    """The named queue does not exist (and may not be created by this call)."""


class PreconditionFailed(QueueManagerError):
    """The call contradicts what exists: other arguments, queue in use, queue not empty."""


class ResourceLocked(QueueManagerError):
    """The queue is exclusive to another connection."""


class AccessRefused(QueueManagerError):
    """An exclusive consumer holds the group, or one is asked for while others consume."""


class InvalidAddress(QueueManagerError):
    """Not a usable queue name, `$queue/...` address or pattern."""


class InvalidArgument(QueueManagerError):
    """An argument is known but its value is not, or it is not supported."""


class LimitReached(QueueManagerError):
    """A named limit of `config.limits` or of the queue is reached."""


class GroupNotFound(QueueManagerError):
    """The named consumer group does not exist on the queue."""


class QueueBusy(QueueManagerError):
    """The queue of that name is just being deleted; ask again when it is gone (`QueueManager.removing`)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"queue {name!r} is being deleted")
        self.name = name
