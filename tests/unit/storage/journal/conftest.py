import os

import pytest

from config import limits
from tests.unit.storage.journal.journals import SEGMENT_BYTES, no_sync


@pytest.fixture
def small(monkeypatch):
    """Segments of 1 KiB, and no waiting for the disk."""
    monkeypatch.setattr(limits, "JOURNAL_SEGMENT_BYTES", SEGMENT_BYTES)
    monkeypatch.setattr(limits, "JOURNAL_SEGMENTS_MAX", 1_000)
    monkeypatch.setattr(os, "fsync", no_sync)
    monkeypatch.setattr(os, "fdatasync", no_sync)
