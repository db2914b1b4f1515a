"""The shape every sans-IO connection has, so that one driver can run any protocol."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, repr=False, slots=True)
class Connection(ABC):
    """One peer's connection as a state machine over bytes and time.

    The driver does the same things every time: feed (`receive`, `receive_eof` or `handle_timeout`), dispatch
    the returned events, write and clear `output`, arm a timer for `next_deadline`, and close the transport
    once `closed` is set and `output` is flushed. `now` is always monotonic seconds.
    """

    output: list[bytes] = field(default_factory=list, init=False)
    """Bytes to write, in order. Hot paths append directly; the driver empties it (in place)."""

    has_large_output: bool = field(default=False, init=False)
    """There is a message in `output` that is better written in steps: the driver calls `take_output` then."""

    closed: bool = field(default=False, init=False)
    """Nothing more will be read: flush `output`, then close the transport."""

    def take_output(self) -> list[bytes]:
        """Give what `output` holds, which is empty then."""
        output = self.output[:]
        self.output.clear()
        self.has_large_output = False
        return output

    def note_large_output(self) -> None:
        """Note that a message in `output` is better written in steps."""
        self.has_large_output = True

    @abstractmethod
    def receive(self, data: bytes, now: float) -> list[Any]:
        """Take bytes from the peer; give the events of every complete frame, keeping a bounded rest.

        Never raises for anything the peer sent: its errors become a close in the protocol's own terms and a
        connection-lost event.
        """

    @property
    @abstractmethod
    def is_let_in(self) -> bool:
        """Whether the peer is past its handshake: somebody knows who it is."""

    @property
    @abstractmethod
    def unfinished_bytes(self) -> int:
        """How much the peer has announced of large messages that have come in part; 0 if there are none."""

    def memory_to_take(self) -> Callable[[], None] | None:
        """Return a call that takes memory for the next part of a large message, None if there is no need.

        It may be left out, but whoever feeds the connection waits for the system then. Best called in a
        thread; what is fed meanwhile may wait all the same.
        """
        return None

    @abstractmethod
    def receive_eof(self) -> list[Any]:
        """Take the end of the peer's side of the transport. Gives the connection-lost event, once."""

    @abstractmethod
    def next_deadline(self) -> float | None:
        """Return when `handle_timeout` must be called next (monotonic seconds), or None for never."""

    @abstractmethod
    def handle_timeout(self, now: float) -> list[Any]:
        """Act on deadlines that have passed at `now`; calling it early does nothing."""
