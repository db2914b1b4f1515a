"""A way to an S3 server that knows what goes over it: what was written, and answers that it may lose."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from tests.storage_faults.s3 import Talk, Way

_GATEWAY_TIMEOUT = b"HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CONTENT_BYTES_MAX = 1 << 20  # of a write, to be noted


class Doubt(Enum):
    """What is said of a conditional write that was done."""

    NOTHING = auto()
    END = auto()
    """The connection ends."""
    TIMEOUT = auto()
    """504."""


@dataclass(slots=True)
class Write:
    """A PUT, by the monotonic clock of the test. `is_done`: the server said so; None: it said nothing, and
    may have done it if that `is_sent`.
    """

    path: str
    is_conditional: bool
    begun_s: float
    content: bytes = b""
    is_sent: bool = False
    is_done: bool | None = None

    @property
    def may_be_done(self) -> bool:
        """Whether it may be in the store."""
        return self.is_sent and self.is_done is not False


class StoreWay(Way):
    """A way whose `writes` to paths with `noted` in them are noted; of so large a `share` of conditional ones
    that were done, what is said is in `doubt`.
    """

    def __init__(self, endpoint: str, noted: str = "", chance: random.Random | None = None) -> None:
        self.noted = noted
        self.writes: list[Write] = []
        self.doubt: Doubt | None = None
        self.share = 1.0
        self.doubted = 0
        self._chance = chance or random.Random()
        super().__init__(endpoint, talk=lambda: _StoreTalk(self._begun))

    def _begun(self, write: Write) -> Doubt | None:
        """Note a write that is begun; gives what will be said of it once it is done, None for the truth."""
        if self.noted and self.noted in write.path:
            self.writes.append(write)
        is_doubted = self.doubt and write.is_conditional and self._chance.random() < self.share
        self.doubted += bool(is_doubted)
        return self.doubt if is_doubted else None

    def heal(self) -> None:
        self.doubt = None
        super().heal()


class _StoreTalk(Talk):
    """One connection, over which one request comes after the other."""

    def __init__(self, begun: Callable[[Write], Doubt | None]) -> None:
        self._begun = begun
        self._head = b""
        self._rest = 0
        self._write: Write | None = None
        self._doubt: Doubt | None = None
        self._is_answered = True

    def asked(self, data: bytes) -> None:
        while data:
            if self._rest:
                part, data = data[: self._rest], data[self._rest :]
                self._rest -= len(part)
                if self._write is not None and len(self._write.content) < _CONTENT_BYTES_MAX:
                    self._write.content += part
                continue
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self._head = b""
            self._begin(head.decode("latin-1"))

    def _begin(self, head: str) -> None:
        request, *lines = head.split("\r\n")
        method, path, _ = request.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._rest = int(headers.get("content-length", 0))
        self._is_answered = False
        self._write = self._doubt = None
        if method == "PUT":
            is_conditional = not headers.keys().isdisjoint(("if-match", "if-none-match"))
            self._write = Write(path, is_conditional, time.monotonic())
            self._doubt = self._begun(self._write)

    def sent(self) -> None:
        if self._write is not None and not self._rest:
            self._write.is_sent = True

    def answered(self, data: bytes) -> bytes:
        if not self._is_answered:
            self._is_answered = True
            if self._write is not None:
                self._write.is_done = data[9:12] == b"200"
                if not self._write.is_done:
                    self._doubt = None
        if self._doubt is Doubt.END:
            raise ConnectionResetError("the answer is lost")
        if self._doubt is Doubt.TIMEOUT:
            answer, self._doubt = _GATEWAY_TIMEOUT, Doubt.NOTHING
            return answer
        return b"" if self._doubt is Doubt.NOTHING else data
