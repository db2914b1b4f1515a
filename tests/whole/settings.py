"""What a queue is declared with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Settings:
    """What a queue was declared with, in milliseconds and counts; 0 is "none" but for `max_length` (None)."""

    durable: bool = True
    auto_delete: bool = False
    max_length: int | None = None
    overflow: str = "drop-head"
    ttl_ms: int | None = None
    dead_exchange: str | None = None
    dead_key: str | None = None
    attempts_max: int = 0
    max_priority: int = 0
    single_active: bool = False
    stream: bool = False
    last_value: bool = False  # of the header `h`
