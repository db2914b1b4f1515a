"""Compile `fill.c`: `python storage/native/compiling.py`.

Imports nothing of the project, since the build of the wheel runs it alone.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
COMPILED: Final = "_fill.abi3.so"
LIMITED_API_OF: Final = "cp311"  # and of every later Python
FLAGS: Final = ("-O2", "-shared", "-fPIC", "-DPy_LIMITED_API=0x030B0000", "-Wall", "-Wextra")
COMPILE_TIMEOUT_S: Final = 60


def compile_fill(directory: Path) -> str | None:
    """Compile the module into `directory`; gives None, or why it could not be compiled."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        return f"no Python.h in {include}"
    made = directory / f"{COMPILED}.{os.getpid()}"
    command = [*compiler, *FLAGS, f"-I{include}", str(HERE / "fill.c"), "-o", str(made)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
    except FileNotFoundError:
        return f"no C compiler: {compiler[0]} is not there"
    except subprocess.TimeoutExpired:
        return f"{compiler[0]} took more than {COMPILE_TIMEOUT_S} s"
    except subprocess.CalledProcessError as error:
        return f"{compiler[0]}: {error.stderr.strip()[-2000:]}"
    made.replace(directory / COMPILED)
    return None


if __name__ == "__main__":
    problem = compile_fill(HERE)
    if problem:
        sys.stderr.write(f"batches are filled by cffi, without C: {problem}\n")
