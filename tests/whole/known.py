"""Defects that are known and not mended yet: what sequences leave out for now. Empty when all are mended."""

KNOWN: dict[str, str] = {
    "again with QoS 0": "what is in flight is lost when its filter is subscribed to again with QoS 0",
    "claimed and not sent": "a full Receive Maximum leaves claims unsent, which count as attempts",
    "counted for a pattern": "a group with a pattern and no consumer counts what it does not want",
}
