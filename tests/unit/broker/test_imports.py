"""What a start imports: libraries that the configuration does not use stay where they are."""

import subprocess
import sys

import pytest

# what each is for: HTTP, tokens, hooks, MQTT over WebSocket, directories
OPTIONAL = ("starlette", "uvicorn", "jinja2", "prometheus_client", "jwt", "httpx", "wsproto", "ldap3")

PROGRAM = """
import sys
{start}
print(*sorted({{name.partition(".")[0] for name in sys.modules}}))
"""

PLAIN_BROKER = """
import asyncio
from broker.app import Broker
async def go():
    async with Broker(storage="memory:"):
        pass
asyncio.run(go())
"""


def modules_after(start: str) -> set[str]:
    """The names of the top-level packages that are there after some statements in a new process."""
    program = PROGRAM.format(start=start)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("start", [PLAIN_BROKER, "import sluicemq.__main__\nfrom broker import serve"])
def test_start_imports_no_library_of_a_part_that_is_not_configured(start):
    assert modules_after(start).isdisjoint(OPTIONAL)


def test_commands_that_ask_a_broker_import_neither_it_nor_its_store():
    imported = modules_after("import sluicemq.__main__")
    assert imported.isdisjoint({"queue_manager", "slatedb", "uvloop", *OPTIONAL})


def test_one_worker_imports_nothing_of_several():
    program = "import sys\nfrom broker import serve\n" + PLAIN_BROKER + "print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert "broker.serve" in imported
    of_several = ("broker.workers", "broker.supervising", "storage.read_only")
    assert [name for name in imported if name.startswith(of_several)] == []


def test_what_workers_are_forked_from_has_no_thread_and_no_loop():
    program = (
        "import asyncio, os\nfrom broker import serve, supervising\n"
        "print(len(os.listdir('/proc/self/task')), asyncio._get_running_loop())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "1 None\n"


FORKED = """
import sys
from broker.supervising import load_for_workers
load_for_workers()
before = set(sys.modules)
from broker.admin.figures import Figures
from broker.network.home_gate import ClientHomes
from broker.workers.worker_settings import loading
from broker.workers.workers import Workers
print(*sorted(set(sys.modules) - before))
"""


def test_worker_finds_what_it_needs_loaded_before_it_was_forked():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
