"""The frames of the corpus, as other projects' programs sent them."""

from pathlib import Path

_LINES = (Path(__file__).parent / "corpus.txt").read_text().splitlines()

FRAMES = [(who, bytes.fromhex(octets)) for who, octets in (line.split() for line in _LINES if line[0] != "#")]
