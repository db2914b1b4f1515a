"""A second virtual host with the same names: a world of its own beside the first, and nothing crosses.

Every operation of AMQP and HTTP may be done in it. Both worlds are settled after each operation, so that
what crosses is found as a delivery or a count that one of them has no reason for.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from tests.whole.clients import Gone
from tests.whole.world import Skip, World

BESIDE = "v2"
FIRST_NUMBER = 1_000_000  # bodies tell which world they are of


class VhostOperations(World):
    """`do_...` in the virtual host beside, and with it."""

    beside: Self | None = None

    @abstractmethod
    def expect(self, wanted: int | tuple[int, ...], method: str, path: str, body: Any = None) -> Any:
        """See `HttpOperations`."""

    def do_beside(self, name: str, op: str, args: dict[str, Any]) -> None:
        """Do an operation in the other virtual host, which is made with the first."""
        if self.beside is None:
            self.expect((200, 201), "PUT", f"/api/v1/vhosts/{BESIDE}", {})
            beside = self.beside = type(self)(self.broker, self.counts, BESIDE)
            beside.number = FIRST_NUMBER
            beside.beside = self
        self.beside.step((op, name, args))

    def do_vhost_delete(self, name: str) -> None:
        """Delete the other virtual host with all that is in it; its clients are sent away."""
        beside = self.beside
        if beside is None:
            raise Skip
        self.expect((200, 204), "DELETE", f"/api/v1/vhosts/{BESIDE}")
        for client in beside.clients():
            try:
                client.wait(lambda: False, "end with the virtual host")
            except Gone:
                pass
        beside.amqp.clear()
        beside.amqp10.clear()
        beside.reset()
        self.beside = None
        self.wait_gone(BESIDE)

    def settle(self) -> None:
        super().settle()
        if self.beside is not None and self.vhost == "/":
            self.beside.settle()

    def connections(self) -> int:
        beside = self.beside
        return super().connections() + (0 if beside is None else len(beside.clients()))

    def finish_beside(self) -> None:
        """Drain the other virtual host, and delete it."""
        if self.beside is not None and self.vhost == "/":
            self.beside.finish()
            self.do_vhost_delete(BESIDE)

    def clear_beside(self) -> None:
        """After a mismatch: whatever is in it."""
        if self.beside is not None and self.vhost == "/":
            for client in self.beside.clients():
                client.drop()
            self.beside.amqp.clear()
            self.beside.amqp10.clear()
            self.beside.reset()
            self.beside = None
            self.http.call("DELETE", f"/api/v1/vhosts/{BESIDE}")

    @abstractmethod
    def reset(self) -> None:
        """See `Whole`."""

    @abstractmethod
    def wait_gone(self, name: str) -> None:
        """See `Whole`."""
