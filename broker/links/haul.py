"""Messages on their way between two connections, as long as both are there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from pamqp import commands

from broker.links.amqp_peer import AmqpPeer
from broker.links.relay import Parcel, Relay, encode_acks
from broker.links.supervised_link import LinkLost

ON_CONFIRM: Final = "on-confirm"
ON_PUBLISH: Final = "on-publish"
NO_ACK: Final = "no-ack"
ACK_MODES: Final = (NO_ACK, ON_PUBLISH, ON_CONFIRM)


class Haul:
    """Passes on what the source delivers. `choose` gives those parcels that are to be published, and may
    `finish` others; `passed_on` is told how many were, and says whether that was all.
    """

    def __init__(
        self,
        source: AmqpPeer,
        target: AmqpPeer,
        ack_mode: str,
        *,
        seal: Callable[[Parcel], bytes],
        choose: Callable[[Sequence[Parcel]], Sequence[Parcel]],
        passed_on: Callable[[int], bool],
    ) -> None:
        self.source = source
        self.target = target
        self.relay = Relay(seal)
        self._ack_mode = ack_mode
        self._choose = choose
        self._passed_on = passed_on

    async def prepare(self, prefetch: int) -> None:
        """Have the target confirm, and the source deliver no more than so many at a time."""
        if self._ack_mode == ON_CONFIRM:
            await self.target.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        qos = commands.Basic.Qos(prefetch_count=prefetch)
        await self.source.call(qos, commands.Basic.QosOk)

    async def run(self, *beside: Coroutine[Any, Any, None]) -> None:
        """Pass messages on, until all are that were to be; other work goes on `beside`. Raises LinkLost."""
        work = (self._from_source(), self._from_target(), *beside)
        tasks = [asyncio.create_task(each) for each in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._give_back()

    async def _from_source(self) -> None:
        relay, target = self.relay, self.target
        while True:
            for frame in await self.source.frames():
                relay.take(frame)
            ready = relay.take_ready()
            if not ready:
                continue
            chosen = self._choose(ready)
            if chosen:
                target.send(relay.publish(chosen))
                await target.drain()
            if self._ack_mode != ON_CONFIRM:
                relay.published()
            if self._acknowledge():
                return

    async def _from_target(self) -> None:
        """Take the target's confirms."""
        while True:
            for frame in await self.target.frames():
                method = frame.method
                if isinstance(method, commands.Basic.Ack | commands.Basic.Nack):
                    if self.relay.settle(method):
                        raise LinkLost("the target takes no more: it refused a message")
                elif isinstance(method, commands.Basic.Return):
                    raise LinkLost(f"the target has no queue for a message: {method.reply_text}")
            if self._acknowledge():
                return
            await self.source.drain()

    def _acknowledge(self) -> bool:
        """Acknowledge what was passed on; whether all is that was to be."""
        done = self.relay.take_done()
        if not done:
            return False
        if self._ack_mode != NO_ACK:
            self.source.send(encode_acks(done, multiple=True))
        return self._passed_on(len(done))

    def _give_back(self) -> None:
        """Return to the source what it was not told about: that is no attempt at delivery."""
        if self._ack_mode != NO_ACK and self.relay.order:
            with suppress(OSError, RuntimeError):
                self.source.say(commands.Basic.Nack(0, True, True))
