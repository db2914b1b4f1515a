"""The refusals of the queue manager, one class per reason; front-ends map them to wire codes."""

from __future__ import annotations

import re
from typing import Final

_VHOST_IN_NAME: Final = re.compile(
    r"""(['"])(?:(?!\1).)+?\\x1d"""
)  # of a name of the core as `repr` shows it


class QueueManagerError(Exception):
    """Base of everything the queue manager refuses. `reason` is fit for the peer: names in it are told as
    they are said in their virtual host.
    """

    def __init__(self, reason: str) -> None:
        reason = _VHOST_IN_NAME.sub(r"\1", reason)
        super().__init__(reason)
        self.reason = reason

    def at(self, place: str) -> QueueManagerError:
        """Return the same refusal, with the place where it was met before the reason."""
        found = type(self).__new__(type(self))
        QueueManagerError.__init__(found, f"{place}: {self.reason}")
        return found


class QueueNotFound(QueueManagerError):
    """The named queue does not exist (and may not be created by this call). `name`: which, if it has one."""

    def __init__(self, text: str, name: str | None = None) -> None:
        super().__init__(text)
        self.name = name

    @classmethod
    def named(cls, name: str) -> QueueNotFound:
        """There is no queue of that name."""
        return cls(f"no queue {name!r}", name)


class ExchangeNotFound(QueueManagerError):
    """The named exchange does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no exchange {name!r}")
        self.name = name


class PreconditionFailed(QueueManagerError):
    """The call contradicts what exists: other arguments, queue in use, queue not empty."""


class Inequivalent(PreconditionFailed):
    """A redeclaration contradicts what exists (`kind`, `name`) in one thing: `received` is not `current`.

    `is_argument`: it is an argument, of which None stands for one that is not there.
    """

    def __init__(
        self, kind: str, name: str, what: str, received: object, current: object, *, is_argument: bool
    ) -> None:
        super().__init__(f"{kind} {name!r} exists with {what} {current!r}, not {received!r}")
        self.kind = kind
        self.name = name
        self.what = what
        self.received = received
        self.current = current
        self.is_argument = is_argument


class InUse(PreconditionFailed):
    """The thing to be deleted (`kind`, `name`) has consumers or bindings."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} is in use")
        self.kind = kind
        self.name = name


class NotEmpty(PreconditionFailed):
    """The queue that is to be deleted has messages."""

    def __init__(self, name: str) -> None:
        super().__init__(f"queue {name!r} is not empty")
        self.name = name


class ResourceLocked(QueueManagerError):
    """The queue is exclusive to another connection."""

    def __init__(self, name: str) -> None:
        super().__init__(f"queue {name!r} is exclusive to another connection")
        self.name = name


class InternalExchange(QueueManagerError):
    """Clients may not publish to an exchange that is only there for other exchanges."""

    def __init__(self, name: str) -> None:
        super().__init__(f"exchange {name!r} is internal")
        self.name = name


class AccessRefused(QueueManagerError):
    """An exclusive consumer holds the group, or one is asked for while others consume."""


class InExclusiveUse(AccessRefused):
    """One consumer has a group of the queue `name` for itself, or wants to. `group`: "" the default one."""

    def __init__(self, name: str, group: str) -> None:
        super().__init__(f"queue {name!r} group {group!r} is in exclusive use")
        self.name = name
        self.group = group


class ReservedName(AccessRefused):
    """A queue or exchange (`kind`) is to be made with a name that only the broker gives."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} name '{name}' contains reserved prefix 'amq.*'")


class InvalidAddress(QueueManagerError):
    """Not a usable queue name, `$queue/...` address or pattern."""


class InvalidArgument(QueueManagerError):
    """An argument is known but its value is not, or it is not supported."""


class NotText(InvalidArgument):
    """An argument of an exchange (`owner`, "" for a binding) is to be a text, and is not."""

    def __init__(self, argument: str, owner: str, value: object) -> None:
        super().__init__(f"{argument} must be a text, not {value!r}")
        self.argument = argument
        self.owner = owner
        self.value = value


class LimitReached(QueueManagerError):
    """A named limit of `config.limits` or of the queue is reached."""


class GroupNotFound(QueueManagerError):
    """The named consumer group does not exist on the queue."""


class QueueBusy(QueueManagerError):
    """The queue of that name is just being deleted; ask again when it is gone (`QueueDirectory.removing`)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"queue {name!r} is being deleted")
        self.name = name
