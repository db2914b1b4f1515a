"""Defects that are known and not mended yet: what sequences leave out for now. Empty when all are mended."""

KNOWN: dict[str, str] = {
    "claimed and not sent": "a full Receive Maximum leaves claims unsent, which count as attempts",
    "successor waits": "the next single active consumer may wait for what a cancelled one holds",
}
