"""The tests of a checkout where the extra `spark` is not installed."""

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
WITHOUT_SPARK = """
import sys
import pytest
sys.modules["pyspark"] = sys.modules["pyarrow"] = None  # importing them fails
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-m", "long or not long", *sys.argv[1:]]))
"""


def test_tests_with_spark_are_skipped_where_it_is_not_installed() -> None:
    """Each file is collected: none fails by what it imports."""
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, "tests/spark"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    summary = run.stdout.splitlines()[-1]
    assert re.fullmatch(r"\d+ skipped in [\d.]+s", summary), run.stdout
