"""Has a process run on another machine, as far as it can tell: $NODE_NAME is its name."""

import os

_uname = os.uname


def _elsewhere() -> os.uname_result:
    here = _uname()
    return os.uname_result((here.sysname, os.environ["NODE_NAME"], here.release, here.version, here.machine))


os.uname = _elsewhere
