"""Compile what is in C, here and in other packages: `python storage/native/compiling.py`.

Imports nothing of the project, since the build of the wheel runs it alone.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ("storage/native/fill.c", "broker/mqtt/native/lone.c", "broker/mqtt/native/each.c")
COMPILED: Final = (
    "storage/native/_fill.abi3.so",
    "broker/mqtt/native/_lone.abi3.so",
    "broker/mqtt/native/_each.abi3.so",
)
LIMITED_API_OF: Final = "cp311"  # and of every later Python
FLAGS: Final = ("-O2", "-shared", "-fPIC", "-DPy_LIMITED_API=0x030B0000", "-Wall", "-Wextra")
COMPILE_TIMEOUT_S: Final = 60


def compile_all(root: Path) -> str | None:
    """Compile all modules into the folders of `root`; gives None, or why one could not be compiled."""
    for source, compiled in zip(SOURCES, COMPILED, strict=True):
        (root / compiled).parent.mkdir(parents=True, exist_ok=True)
        problem = _compile(ROOT / source, root / compiled)
        if problem is not None:
            return problem
    return None


def _compile(source: Path, compiled: Path) -> str | None:
    compiler = shlex.split(os.environ.get("CC") or "cc")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        return f"no Python.h in {include}"
    made = compiled.with_name(f"{compiled.name}.{os.getpid()}")
    command = [*compiler, *FLAGS, f"-I{include}", str(source), "-o", str(made)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
    except FileNotFoundError:
        return f"no C compiler: {compiler[0]} is not there"
    except subprocess.TimeoutExpired:
        return f"{compiler[0]} took more than {COMPILE_TIMEOUT_S} s"
    except subprocess.CalledProcessError as error:
        return f"{compiler[0]}: {error.stderr.strip()[-2000:]}"
    made.replace(compiled)
    return None


if __name__ == "__main__":
    problem = compile_all(ROOT)
    if problem:
        sys.stderr.write(f"what can be in C is done in Python: {problem}\n")
