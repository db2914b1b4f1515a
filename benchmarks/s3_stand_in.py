"""An object store on this machine whose requests take as long as those of one that is far away.

    python -m benchmarks.s3_stand_in [--put-ms 30] [--port 9000]

Serves moto with a pause before each PUT, prints the environment that leads brokers there, and goes on until
it is stopped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from benchmarks import command_line
from benchmarks.brokers import HOST, free_port

BUCKET: Final = "sluice"
KEYS: Final = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


class _Quiet(WSGIRequestHandler):
    """Keeps connections open, as object stores do, and says nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None: ...


def slowed(application: Application, put_s: float) -> Application:
    """Have each PUT take so much longer."""

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT":
            time.sleep(put_s)
        return application(environ, start_response)

    return serve


@contextmanager
def s3_stand_in(put_ms: float) -> Iterator[dict[str, str]]:
    """Run one in a process of its own, with an empty bucket; gives the environment that leads there."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.s3_stand_in", "--put-ms", str(put_ms), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        environment = dict(process.stdout.readline().strip().partition("=")[::2] for _ in range(4))
        try:
            yield environment
        finally:
            process.kill()


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--put-ms", type=float, default=30.0)
    parser.add_argument("--port", type=int, default=9000)
    given = parser.parse_args()
    application = slowed(DomainDispatcherApplication(create_backend_app), given.put_ms / 1000)
    server = make_server(HOST, given.port, application, threaded=True, request_handler=_Quiet)
    environment = {"AWS_ENDPOINT_URL": f"http://{HOST}:{given.port}", **KEYS}
    os.environ |= environment
    for name, value in environment.items():
        print(f"{name}={value}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
