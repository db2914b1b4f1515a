"""How many examples property tests look at: few on every run, many where a profile asks for more."""

import os


def examples(quick: int, many: int) -> int:
    """`quick`, or `many` under `make test-long` and HYPOTHESIS_PROFILE=explore or fuzz."""
    return many if os.environ.get("HYPOTHESIS_PROFILE", "repeatable") != "repeatable" else quick
