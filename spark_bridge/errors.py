"""Errors, said so that whoever reads a Spark stack trace knows which option to look at."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class SluiceError(Exception):
    """Base of what the bridge raises."""


class OptionError(SluiceError, ValueError):
    """An option or a column is unknown, missing or has a value it cannot have."""


class SparkTooOld(SluiceError, ImportError):
    """A PySpark that does not have what the bridge needs."""


class BrokerUnreachable(SluiceError):
    """No connection to the broker; trying again may help."""


class Refused(SluiceError):
    """The broker refused what was asked; trying again will not help."""


class CheckpointTooOld(Refused):
    """The query replays an epoch older than the last one in the queue: nothing it writes may be trusted."""


class DataLost(SluiceError):
    """Retention took messages before the query read them."""


def _hide_traceback() -> None:
    """Have PySpark begin with our words: it writes a worker's traceback before them unless told not to.

    Only in a worker, which ends with the error.
    """
    specification = getattr(sys.modules.get("__main__"), "__spec__", None)
    if specification is not None and specification.name.partition(".")[0] == "pyspark":
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def said_plainly(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function that Spark calls: it shows whole tracebacks, where what matters would come after many
    lines of ours.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except SluiceError as error:
            _hide_traceback()
            raise error.with_traceback(None) from None

    return call


def rows_said_plainly(method: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Wrap as `said_plainly`, for what is given row by row or batch by batch."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        try:
            yield from method(*args, **kwargs)
        except SluiceError as error:
            _hide_traceback()
            raise error.with_traceback(None) from None

    return call
