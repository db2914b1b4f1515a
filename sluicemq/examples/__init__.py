"""The folder `examples` under the name it has when installed; the wheel has the folder itself here."""

from pathlib import Path

__path__ = [str(Path(__file__).parents[2] / "examples")]
