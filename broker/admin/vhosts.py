"""What administration may ask about virtual hosts, and do to them."""

from __future__ import annotations

from typing import Protocol

from broker.vhost import VhostView


class Vhosts(Protocol):
    """The virtual hosts of a broker. What stands in its configuration is changed there. Changes are durable
    when a call returns.
    """

    async def all(self) -> list[VhostView]:
        """All virtual hosts, by name."""
        ...

    async def view(self, name: str) -> VhostView:
        """One virtual host; raises VhostNotFound."""
        ...

    async def declare(
        self, name: str, *, max_connections: int | None = None, max_queues: int | None = None
    ) -> bool:
        """Have a virtual host with these limits (0: none; None: as they are, at first none); whether it is
        new.

        Raises InvalidArgument, LimitReached; PreconditionFailed where the configuration says otherwise.
        """
        ...

    async def delete(self, name: str) -> None:
        """Delete a virtual host with all that is in it; who is connected to it is sent away.

        Raises VhostNotFound; PreconditionFailed for `/` and for what stands in the configuration.
        """
        ...
