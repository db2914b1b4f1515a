"""What the simulated devices measure, and how badly they send it; the same for the same seed."""

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

DEVICES = tuple(f"press-{number:02}" for number in range(1, 13))
MINUTES_MAX = 80  # of event time
STEP_S = 2  # event time between two readings of a device
SPEED = 20  # event time goes by so much faster
DELAY_S = 60  # the pipeline's watermark
WINDOW_S = 60

BROKEN_SHARE = 0.01
TWICE_SHARE = 0.02
HELD_BACK_SHARE = 0.05
HELD_BACK_MAX_S = 40  # less than DELAY_S: late, but not too late
# one device loses its network for so long, and sends what it measured afterwards: too late
OFFLINE = ("press-05", 4 * 60, 5 * 60)
BACK_S = 9 * 60


class Message(NamedTuple):
    """What a device publishes; `problem` is what the pipeline must find wrong with it, or ""."""

    device: str
    body: bytes
    problem: str = ""


class Plant:
    """All devices. Event time begins at `begin`."""

    def __init__(self, begin: datetime, seed: int) -> None:
        self.begin = begin
        self._random = random.Random(seed)
        self._hot = {device: self._episodes() for device in DEVICES}
        self._later: dict[int, list[Message]] = {}

    def _episodes(self) -> list[tuple[float, float, float]]:
        """When a device is too warm: from, until (s) and by how much."""
        episodes = []
        start = self._random.uniform(0, 600)
        while start < MINUTES_MAX * 60:
            end = start + self._random.uniform(90, 200)
            episodes.append((start, end, self._random.uniform(20, 33)))
            start = end + self._random.uniform(240, 900)
        return episodes

    def value(self, device: str, second: float) -> float:
        """Degrees, with noise."""
        excess = max((more for start, end, more in self._hot[device] if start <= second < end), default=0.0)
        return round(62 + excess + self._random.gauss(0, 2), 2)

    def step(self, number: int) -> list[Message]:
        """What the devices publish at one moment."""
        second = number * STEP_S
        messages = self._later.pop(number, [])
        for device in DEVICES:
            message = self._reading(device, number, second)
            if device == OFFLINE[0] and OFFLINE[1] <= second < OFFLINE[2]:
                self._later.setdefault(BACK_S // STEP_S, []).append(message)
                continue
            draw = self._random.random()
            if draw < HELD_BACK_SHARE:
                steps = self._random.randint(1, HELD_BACK_MAX_S // STEP_S)
                self._later.setdefault(number + steps, []).append(message)
                continue
            messages.append(message)
            if draw > 1 - TWICE_SHARE:
                messages.append(message)
            elif draw > 1 - TWICE_SHARE - BROKEN_SHARE:
                messages.append(self._broken(device, number))
        return messages

    def rest(self) -> list[Message]:
        """What is still held back when the devices stop."""
        return [message for step in sorted(self._later) for message in self._later.pop(step)]

    def ticks(self, number: int) -> list[Message]:
        """What closes the last windows, after `number` steps."""
        second = number * STEP_S + WINDOW_S + DELAY_S + 1
        fields = [self._fields(device, number, second) for device in DEVICES]
        return [Message(each["device"], json.dumps({**each, "tick": True}).encode()) for each in fields]

    def _fields(self, device: str, number: int, second: float) -> dict[str, Any]:
        taken = (self.begin + timedelta(seconds=second)).isoformat()
        return {"device": device, "seq": number, "ts": taken}

    def _reading(self, device: str, number: int, second: float) -> Message:
        fields = self._fields(device, number, second)
        return Message(device, json.dumps({**fields, "value": self.value(device, second)}).encode())

    def _broken(self, device: str, number: int) -> Message:
        whole = self._reading(device, number, number * STEP_S)
        kind = self._random.choice(("malformed", "value", "ahead"))
        if kind == "malformed":
            return Message(device, whole.body[: len(whole.body) // 2], kind)
        fields = json.loads(whole.body)
        if kind == "value":
            fields["value"] = None
        else:
            fields["ts"] = datetime(2099, 1, 1, tzinfo=UTC).isoformat()
        return Message(device, json.dumps(fields).encode(), kind)
