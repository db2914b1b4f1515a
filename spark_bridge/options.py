"""Options of `spark.read`/`.write` `.format("sluice")`: known ones only, each with a value it can have."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import unquote, urlsplit

from spark_bridge.errors import OptionError
from spark_bridge.settings import (
    AT_LEAST_ONCE,
    COMMITTED,
    EARLIEST,
    EXACTLY_ONCE,
    IDEMPOTENT,
    KAFKA_COLUMNS,
    LATEST,
    SLUICE_COLUMNS,
    VISIBLE,
    ClaimSettings,
    ConnectionSettings,
    ListSettings,
    ReadSettings,
    WriteSettings,
)

CONNECTION_OPTIONS: Final = (
    "url", "host", "port", "vhost", "username", "password", "passwordFile", "passwordEnv", "tls", "caFile",
    "connectTimeout", "confirmTimeout",
)  # fmt: skip
WRITE_OPTIONS: Final = (
    "queue", "exchange", "routingKey", "delivery", "producerId", "epoch", "sinkName", "confirmWindow",
    "mandatory", "wait",
)  # fmt: skip
READ_OPTIONS: Final = (
    "queue", "startingOffsets", "endingOffsets", "offsetsPerPartition", "failOnDataLoss", "group",
    "includeHeaders", "maxOffsetsPerTrigger", "startingTimestamp", "endingTimestamp", "columns", "claim",
    "selector",
)  # fmt: skip
CLAIM_OPTIONS: Final = (
    "queue", "claim", "group", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "offsetsPerPartition", "lease",
    "selector", "includeHeaders", "columns",
)  # fmt: skip
LIST_OPTIONS: Final = ("queue", "state", "group", "includeHeaders")
STATES: Final = ("ready", "in_flight", "delayed", "scheduled", "failed", "done")
BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp")
STREAM_ONLY: Final = ("group", "maxOffsetsPerTrigger")
TIME_MS_MAX: Final = 253_402_300_799_999  # the year 9999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
OFFSET_MAX: Final = (1 << 56) - 1
# Spark adds these by itself
SPARK_OPTIONS: Final = ("checkpointLocation", "queryName", "path")
CONFIRM_WINDOW_MAX: Final = 1_000_000
CLAIMED_MESSAGES_MAX: Final = 30_000
CLAIMED_BYTES_MAX: Final = 256 << 20
ADDRESSES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read or write, looked up without regard to case, as Spark does it."""

    values: Mapping[str, str]

    @classmethod
    def of(cls, given: Mapping[str, str], known: tuple[str, ...]) -> Options:
        """Take options that are among `known`; raises OptionError naming those that are not."""
        values = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in (*known, *SPARK_OPTIONS)}
        unknown = sorted(name for name in values if name not in names)
        if unknown:
            raise OptionError(f"unknown option {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        return cls(values)

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name.lower(), default)

    def given(self, name: str) -> bool:
        return name.lower() in self.values

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name, default)
        if value not in choices:
            raise OptionError(f"option {name} is one of {', '.join(choices)}, not {value!r}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str, low: int, high: int, default: int | None) -> int | None:
        text = self.values.get(name.lower())
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise OptionError(f"option {name} is a whole number from {low} to {high}, not {text!r}")
        return int(text)

    def time_ms(self, name: str) -> int:
        """Return a moment in ms since 1970; -1 when the option is not there."""
        text = self.values.get(name.lower())
        if text is None:
            return -1
        try:
            if text.isascii() and text.isdigit():
                moment_ms = int(text)
            else:
                moment = datetime.fromisoformat(text)
                if moment.tzinfo is None:
                    raise ValueError
                moment_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
            if not 0 <= moment_ms <= TIME_MS_MAX:
                raise ValueError
        except ValueError:
            raise OptionError(
                f"option {name} is ms since 1970 or a time with its zone, such as"
                f" 2026-01-31T08:00:00+01:00, not {text!r}"
            ) from None
        return moment_ms

    def seconds(self, name: str, default: float) -> float:
        text = self.values.get(name.lower())
        if text is None:
            return default
        factor, digits = 1.0, text
        for unit, size in (("ms", 0.001), ("s", 1.0), ("m", 60.0)):
            if text.endswith(unit):
                factor, digits = size, text.removesuffix(unit)
                break
        try:
            value = float(digits) * factor
        except ValueError:
            value = 0.0
        if not 0 < value <= 86_400:
            raise OptionError(f"option {name} is a time such as 30s or 500ms, not {text!r}")
        return value


def connection_settings(options: Options) -> ConnectionSettings:
    """Return where the broker is; `url` stands for host, port, vhost, username, password and tls at once."""
    defaults = ConnectionSettings()
    vhost, username = defaults.vhost, defaults.username
    password = _password(options)
    if options.given("url"):
        both = [n for n in ("host", "port", "vhost", "username", "tls") if options.given(n)]
        if both:
            raise OptionError(f"option url says it already: {', '.join(both)}")
        url = urlsplit(options.text("url"))
        login, _, hosts = url.netloc.rpartition("@")
        if url.scheme not in ("amqp", "amqps") or not hosts:
            raise OptionError("option url looks like amqp://user:password@host:5672,another:5672/vhost")
        tls = url.scheme == "amqps"
        addresses = _addresses("url", hosts, 5671 if tls else 5672)
        vhost = unquote(url.path[1:]) or "/"
        name, _, secret = login.partition(":")
        username = unquote(name or username)
        password = password if password is not None else unquote(secret or defaults.password)
    else:
        tls = options.flag("tls", False)
        port = options.number("port", 1, 65_535, 5671 if tls else 5672) or 0
        addresses = _addresses("host", options.text("host", defaults.host), port)
        vhost = options.text("vhost", vhost)
        username = options.text("username", username)
    if options.given("caFile") and not tls:
        raise OptionError("option caFile needs tls")
    return ConnectionSettings(
        *addresses[0],
        vhost,
        username,
        defaults.password if password is None else password,
        tls,
        options.text("caFile"),
        options.seconds("connectTimeout", defaults.connect_timeout_s),
        options.seconds("confirmTimeout", defaults.confirm_timeout_s),
        addresses[1:],
    )


def _addresses(name: str, text: str, port: int) -> tuple[tuple[str, int], ...]:
    """Return hosts with their ports: one, or several with commas."""
    addresses = []
    for part in text.split(","):
        try:
            place = urlsplit(f"//{part.strip()}")
            own_port = place.port
        except ValueError as error:
            raise OptionError(f"option {name}: {error}") from None
        if not place.hostname or place.username is not None or place.path or own_port == 0:
            raise OptionError(f"option {name}: {part!r} is no host, or host:port")
        addresses.append((place.hostname, own_port or port))
    if len(addresses) > ADDRESSES_MAX or len(set(addresses)) != len(addresses):
        raise OptionError(f"option {name} names 1 to {ADDRESSES_MAX} different addresses")
    return tuple(addresses)


def _password(options: Options) -> str | None:
    given = [name for name in ("password", "passwordFile", "passwordEnv") if options.given(name)]
    if len(given) > 1:
        raise OptionError(f"only one of the options {', '.join(given)} can say the password")
    if options.given("passwordFile"):
        try:
            with open(options.text("passwordFile"), encoding="utf-8") as file:
                return file.read().rstrip("\n")
        except OSError as error:
            raise OptionError(f"option passwordFile: {error}") from None
    if options.given("passwordEnv"):
        name = options.text("passwordEnv")
        if name not in os.environ:
            raise OptionError(f"option passwordEnv: the driver's environment has no {name}")
        return os.environ[name]
    return options.text("password") if options.given("password") else None


def write_settings(given: Mapping[str, str]) -> WriteSettings:
    """Return the settings of a write; raises OptionError."""
    options = Options.of(given, (*CONNECTION_OPTIONS, *WRITE_OPTIONS))
    delivery = options.choice("delivery", (EXACTLY_ONCE, AT_LEAST_ONCE, IDEMPOTENT), EXACTLY_ONCE)
    queue = options.text("queue")
    if queue == "$queue" or queue.startswith("$queue/"):
        raise OptionError(f"option queue is a queue's name, not the address {queue!r}")
    if queue and options.given("exchange"):
        raise OptionError("options queue and exchange exclude each other")
    if delivery != AT_LEAST_ONCE and not queue:
        raise OptionError(f"delivery {delivery} goes into one queue: set option queue")
    if delivery != EXACTLY_ONCE:
        extra = [name for name in ("producerId", "epoch", "sinkName", "wait") if options.given(name)]
        if extra:
            raise OptionError(f"option {', '.join(extra)} is for delivery {EXACTLY_ONCE}")
    if options.given("epoch") and not options.given("producerId"):
        raise OptionError("option epoch needs option producerId: epochs are counted per producer")
    return WriteSettings(
        connection_settings(options),
        delivery,
        queue,
        options.text("exchange"),
        options.text("routingKey") if options.given("routingKey") else None,
        _producer(options, "producerId"),
        options.number("epoch", 0, (1 << 63) - 1, None),
        _producer(options, "sinkName"),
        options.number("confirmWindow", 1, CONFIRM_WINDOW_MAX, 2_000) or 1,
        options.flag("mandatory", True),
        options.choice("wait", (COMMITTED, VISIBLE), COMMITTED) == VISIBLE,
    )


def _producer(options: Options, name: str) -> str:
    text = options.text(name)
    if options.given(name) and not 1 <= len(text.encode()) <= 150:
        raise OptionError(f"option {name} has 1 to 150 bytes")
    return text


def is_list(given: Mapping[str, str]) -> bool:
    """Return whether a list of messages in a state is to be read, rather than streams."""
    return "state" in {name.lower() for name in given}


def is_claim(given: Mapping[str, str]) -> bool:
    """Return whether the messages of a work queue are to be claimed; raises OptionError."""
    return Options(_lower(given)).flag("claim", False)


def claim_settings(given: Mapping[str, str]) -> ClaimSettings:
    """Return the settings of claiming the messages of a work queue; raises OptionError."""
    lower = Options(_lower(given))
    streams = [name for name in READ_OPTIONS if name not in CLAIM_OPTIONS and lower.given(name)]
    if streams:
        raise OptionError(f"option {', '.join(streams)} is for streams: it does not go with option claim")
    options = Options.of(given, (*CONNECTION_OPTIONS, *CLAIM_OPTIONS))
    queues = _queues(options)
    if len(queues) > 1:
        raise OptionError("option claim takes one queue: read others by queries of their own")
    defaults = ClaimSettings(ConnectionSettings(), queues[0])
    return ClaimSettings(
        connection_settings(options),
        queues[0],
        options.text("group"),
        options.number("maxOffsetsPerTrigger", 1, CLAIMED_MESSAGES_MAX, defaults.messages_per_trigger) or 1,
        options.number("maxBytesPerTrigger", 1, CLAIMED_BYTES_MAX, defaults.bytes_per_trigger) or 1,
        options.number("offsetsPerPartition", 1, 10_000_000, defaults.messages_per_partition) or 1,
        round(options.seconds("lease", 0) * 1_000),
        options.text("selector"),
        options.flag("includeHeaders", True),
        columns_of(given),
    )


def columns_of(given: Mapping[str, str]) -> str:
    """Return which columns a read has; raises OptionError."""
    return Options(_lower(given)).choice("columns", (SLUICE_COLUMNS, KAFKA_COLUMNS), SLUICE_COLUMNS)


def list_settings(given: Mapping[str, str]) -> ListSettings:
    """Return the settings of reading a list; raises OptionError."""
    streams = [
        name for name in READ_OPTIONS if name not in LIST_OPTIONS and Options(_lower(given)).given(name)
    ]
    if streams:
        raise OptionError(f"option {', '.join(streams)} is for streams: it does not go with option state")
    options = Options.of(given, (*CONNECTION_OPTIONS, *LIST_OPTIONS))
    return ListSettings(
        connection_settings(options),
        _queues(options),
        options.choice("state", STATES, STATES[0]),
        options.text("group") if options.given("group") else None,
        options.flag("includeHeaders", True),
    )


def _lower(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in given.items()}


def _queues(options: Options) -> tuple[str, ...]:
    queues = tuple(name.strip() for name in options.text("queue").split(",") if name.strip())
    if not queues or len(set(queues)) != len(queues):
        raise OptionError("option queue names what to read, or several different ones with commas")
    return queues


def read_settings(given: Mapping[str, str], *, streaming: bool) -> ReadSettings:
    """Return the settings of reading streams; raises OptionError."""
    if is_list(given):
        raise OptionError("option state is for batch reads")
    if is_claim(given):
        raise OptionError("option claim is for streaming reads")
    options = Options.of(given, (*CONNECTION_OPTIONS, *READ_OPTIONS))
    for name in BATCH_ONLY if streaming else STREAM_ONLY:
        if options.given(name):
            raise OptionError(f"option {name} is for {'batch' if streaming else 'streaming'} reads")
    queues = _queues(options)
    starting, starting_offsets = _offsets(options, "startingOffsets", queues, (EARLIEST, LATEST))
    _, ending_offsets = _offsets(options, "endingOffsets", queues, (LATEST,))
    for which in ("starting", "ending"):
        if options.given(f"{which}Offsets") and options.given(f"{which}Timestamp"):
            raise OptionError(f"options {which}Offsets and {which}Timestamp exclude each other")
    group = options.text("group")
    if streaming and starting == LATEST and not group:
        raise OptionError(
            "startingOffsets latest needs option group: the broker keeps the place for it, or a failure in"
            " the first batch would begin later than the first time"
        )
    if not streaming and starting == LATEST:
        raise OptionError("startingOffsets latest would read nothing: it is for streaming reads")
    return ReadSettings(
        connection_settings(options),
        queues,
        starting,
        starting_offsets,
        ending_offsets,
        options.number("offsetsPerPartition", 1, 10_000_000, 50_000) or 1,
        options.flag("failOnDataLoss", True),
        group,
        options.flag("includeHeaders", True),
        options.number("maxOffsetsPerTrigger", 1, OFFSET_MAX, 0) or 0,
        options.time_ms("startingTimestamp"),
        options.time_ms("endingTimestamp"),
        columns_of(given),
        options.text("selector"),
    )


def _offsets(
    options: Options, name: str, queues: tuple[str, ...], words: tuple[str, ...]
) -> tuple[str, tuple[tuple[str, int], ...]]:
    text = options.text(name, words[0])
    if text in words:
        return text, ()
    wanted = f'option {name} is {" or ".join(words)}, or JSON such as {{"{queues[0]}": 12}}, not {text!r}'
    try:
        values = json.loads(text)
    except ValueError:
        raise OptionError(wanted) from None
    if not isinstance(values, dict):
        raise OptionError(wanted)
    for queue, offset in values.items():
        if queue not in queues:
            raise OptionError(f"option {name} names {queue!r}, which option queue does not")
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= OFFSET_MAX:
            raise OptionError(wanted)
    return words[0], tuple(sorted(values.items()))
