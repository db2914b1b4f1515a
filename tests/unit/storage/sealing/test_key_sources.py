"""Keys from files, and those that a command or a service keeps wrapped."""

import base64
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from config import limits
from config.settings import EncryptionKeySettings, EncryptionSettings, StorageSettings
from storage.errors import StorageError
from storage.open import open_store
from storage.sealing.key_sources import read_key, unwrap_key, wrap_key
from tests.unit.storage.sealing.rings import SECRETS, found_in, key_file
from tests.unit.storage.store_conformance import batch

WRAPS = """
import base64, json, sys
asked = json.load(sys.stdin)
key = base64.b64decode(asked["key"])
with open(sys.argv[1], "a") as log:
    log.write(asked["action"] + " " + asked["id"] + "\\n")
answer = bytes(byte ^ int(sys.argv[2]) for byte in key)
print(json.dumps({"key": base64.b64encode(answer).decode()}))
"""


def command(tmp_path: Path, mask: int = 0x5A, source: str = WRAPS) -> EncryptionKeySettings:
    """A key that a command wraps: it writes what it is asked into `asked`."""
    program = tmp_path / "wraps.py"
    program.write_text(source)
    called = (sys.executable, str(program), str(tmp_path / "asked"), str(mask))
    return EncryptionKeySettings(id="kms", command=called)


def stored_by(tmp_path: Path, *keys: EncryptionKeySettings) -> StorageSettings:
    return StorageSettings(url=str(tmp_path / "data"), encryption=EncryptionSettings(keys=keys))


def test_key_is_read_from_hexadecimal_digits(tmp_path):
    assert read_key(key_file(tmp_path, "2026")) == b"\xaa" * 32
    assert read_key(key_file(tmp_path, "2026", "  " + "Ab" * 32)) == b"\xab" * 32


@pytest.mark.parametrize("text", ["aa" * 31, "aa" * 33, "zz" * 32, "aa " * 21 + "a", "\xe9" * 64, " "])
def test_file_that_holds_no_key_is_refused(tmp_path, text):
    with pytest.raises(StorageError, match="2026.key does not hold 64 hexadecimal digits, as `openssl rand"):
        read_key(key_file(tmp_path, "2026", text))


def test_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(StorageError, match="key 2026: .*gone: No such file"):
        read_key(EncryptionKeySettings(id="2026", file=str(tmp_path / "gone")))


async def test_key_is_wrapped_once_by_a_command_and_unwrapped_at_each_start(tmp_path):
    settings = stored_by(tmp_path, command(tmp_path))
    for number in range(3):
        store = await open_store(settings)
        await store.write(batch({b"k%d" % number: b"v"}))
        assert len(await store.scan(b"k", b"l", limit=9)) == number + 1
        await store.close()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["wrap kms", *["unwrap kms"] * 3]


async def test_key_from_a_file_is_replaced_by_one_that_a_command_wraps(tmp_path):
    file = key_file(tmp_path, "2026")
    store = await open_store(stored_by(tmp_path, file))
    await store.write(batch({b"k": b"v"}))
    await store.close()
    store = await open_store(stored_by(tmp_path, command(tmp_path), file))
    assert await store.get(b"k") == b"v"
    await store.close()
    assert not found_in(tmp_path / "data", bytes.fromhex(SECRETS["2026"]))


async def test_command_that_unwraps_another_key_is_refused(tmp_path):
    await (await open_store(stored_by(tmp_path, command(tmp_path)))).close()
    with pytest.raises(
        StorageError, match="has another key than the one that this storage is encrypted with"
    ):
        await open_store(stored_by(tmp_path, command(tmp_path, 0x11)))


async def test_key_in_a_file_cannot_become_one_that_is_wrapped(tmp_path):
    await (await open_store(stored_by(tmp_path, key_file(tmp_path, "2026")))).close()
    other = command(tmp_path).model_copy(update={"id": "2026"})
    with pytest.raises(StorageError, match="key 2026 was in a file when it was first used"):
        await open_store(stored_by(tmp_path, other))


BAD = {
    "import sys; sys.exit('no such key in the vault')": "ended with 1: no such key in the vault",
    "print('no JSON')": "the answer to wrap is not a key as JSON and Base64",
    "print('{\"key\": 5}')": "the answer to wrap is not a key",
    'print(\'{"key": ""}\')': "the answer to wrap is an empty key",
    'print(\'{"key": "?"}\')': "the answer to wrap is not a key",
    "import time; time.sleep(60)": "has not ended in 1 s",
    'print(\'{"key": "QUJD"}\')': "what unwraps it gave 3 bytes, not 32",
    f'print(\'{{"key": "{base64.b64encode(bytes(32)).decode()}"}}\')': "does not unwrap what it wrapped",
}


@pytest.mark.parametrize("source", BAD)
async def test_command_that_does_not_answer_with_a_key_is_refused(tmp_path, monkeypatch, source):
    monkeypatch.setattr(limits, "KEY_HOOK_TIMEOUT_S", 1)
    with pytest.raises(StorageError, match=BAD[source]):
        await open_store(stored_by(tmp_path, command(tmp_path, source=source)))


def test_command_that_is_not_there_is_refused():
    missing = EncryptionKeySettings(id="kms", command=("/no/such/program",))
    with pytest.raises(StorageError, match="key kms: /no/such/program: No such file"):
        wrap_key(missing, bytes(32))


class Service(HTTPServer):
    """Wraps by a mask, and answers with `status`; what it was asked is in `asked`."""

    asked: list[tuple[str, str, str | None]]
    status = 200


@pytest.fixture
def service():

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.asked.append((asked["action"], asked["id"], self.headers.get("Authorization")))
            key = bytes(byte ^ 0x33 for byte in base64.b64decode(asked["key"]))
            self.send_response(server.status)
            if server.status == 302:
                self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(json.dumps({"key": base64.b64encode(key).decode()}).encode())

        def log_message(self, *arguments):
            pass

    server = Service(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_service_wraps_and_unwraps_and_is_shown_the_token(service, tmp_path):
    (tmp_path / "token").write_text("let-me-in\n")
    url = f"http://127.0.0.1:{service.server_port}/keys"
    settings = EncryptionKeySettings(id="kms", url=url, token_file=str(tmp_path / "token"))
    wrapped = wrap_key(settings, b"\xaa" * 32)
    assert wrapped == b"\x99" * 32
    assert unwrap_key(settings, wrapped) == b"\xaa" * 32
    assert service.asked == [(action, "kms", "Bearer let-me-in") for action in ("wrap", "unwrap")]


@pytest.mark.parametrize("status", [302, 403, 500])
def test_service_that_refuses_or_sends_elsewhere_is_told(service, status):
    service.status = status
    settings = EncryptionKeySettings(id="kms", url=f"http://127.0.0.1:{service.server_port}/")
    with pytest.raises(StorageError, match=f"key kms: http://127.0.0.1:.* answers {status}"):
        wrap_key(settings, bytes(32))


def test_service_that_is_not_there_is_told():
    with pytest.raises(StorageError, match="key kms: http://127.0.0.1:1/: .*refused"):
        wrap_key(EncryptionKeySettings(id="kms", url="http://127.0.0.1:1/"), bytes(32))
