"""Who takes direct replies: requesters that consume without a queue."""

from __future__ import annotations

from collections.abc import Callable

from broker.engine.answers import Answer

ReplyTaker = Callable[[list[bytes], list[bytes]], None]
"""Takes properties and bodies of replies to one requester, in order; there may be no room for them."""


class ReplyClient:
    """The requesters of all virtual hosts; `takers` are who takes replies, by the routing keys these have."""

    def __init__(self) -> None:
        self.takers: dict[str, ReplyTaker] = {}

    def begin(self, key: str, take: ReplyTaker) -> Answer[None]:
        """Have replies of this routing key taken; whoever may publish them knows once the answer is there."""
        self.takers[key] = take
        return Answer.given(None)

    def end(self, key: str) -> None:
        """Have replies of this routing key taken no more."""
        self.takers.pop(key, None)
