"""broker.access.web_hook: a service is asked, and what is not clear lets nobody in."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from broker.access.access import Access
from broker.access.credentials import LoginRefused, Password, Peer
from broker.access.rights import Action, Kind
from broker.clock import Clock
from config import limits
from config.access import AccessSettings, HookSettings

PEER = Peer("10.0.0.1")
ALLOWED = {"allow": True, "user": "alice", "tags": ["monitoring"], "permissions": [{"read": "^a$"}]}


class Service(BaseHTTPRequestHandler):
    """Answers `status` and `said` after `delay_s`; keeps what it was asked."""

    status = 200
    said: object = ALLOWED
    delay_s = 0.0
    asked: list = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.asked.append((json.loads(body), self.headers.get("authorization")))
        time.sleep(self.delay_s)
        self.send_response(self.status)
        self.end_headers()
        said = self.said if isinstance(self.said, bytes) else json.dumps(self.said).encode()
        self.wfile.write(said)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def service():
    Service.status, Service.said, Service.delay_s, Service.asked = 200, ALLOWED, 0.0, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
async def ask(service, tmp_path):
    (tmp_path / "token").write_text("shown\n")
    hook = HookSettings(
        url=service, token_file=str(tmp_path / "token"), timeout_ms=20_000, cache_refused_ms=0
    )
    access = Access(AccessSettings(http=hook, anonymous="never"), Clock())

    async def login(user="alice", password=b"pw"):
        return await access.login(Password(user, password), PEER)

    yield login
    await access.close()


async def refused(ask, *arguments):
    with pytest.raises(LoginRefused) as error:
        await ask(*arguments)
    assert error.value.told == LoginRefused.TOLD
    return error.value.reason


async def test_the_service_says_who_may_do_what(ask):
    found = await ask()
    assert (found.user, found.tags) == ("alice", {"monitoring"})
    assert found.enter("/").may(Action.READ, Kind.QUEUE, "a")
    assert not found.enter("/").may(Action.READ, Kind.QUEUE, "b")
    asked = {"user": "alice", "password": "pw", "address": "10.0.0.1"}
    assert Service.asked == [(asked, "Bearer shown")]


async def test_an_answer_is_kept_for_the_same_credentials_only(ask):
    await ask()
    await ask()
    assert len(Service.asked) == 1
    await ask("alice", b"other")
    await ask("bob")
    assert len(Service.asked) == 3


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (200, {"allow": False}),
        (403, {}),
        (302, ALLOWED),
        (200, {"allow": 1, "user": "alice"}),
        (200, {"allow": "true", "user": "alice"}),
        (200, {"user": "alice"}),
        (200, {"allow": True}),
        (200, {"allow": True, "user": ""}),
        (200, {"allow": True, "user": "alice", "permissions": [{"read": "("}]}),
        (200, {"allow": True, "user": "alice", "permissions": [{"unknown": "x"}]}),
        (200, b"no json"),
        (200, []),
        (500, ALLOWED),
        (200, b"[" * 100_000),
    ],
)
async def test_anything_but_a_clear_yes_lets_nobody_in(ask, status, said):
    Service.status, Service.said = status, said
    assert await refused(ask)


async def test_a_slow_service_lets_nobody_in(service):
    Service.delay_s = 3
    access = Access(AccessSettings(http=HookSettings(url=service, timeout_ms=100)), Clock())
    started = time.monotonic()
    with pytest.raises(LoginRefused, match="failed"):
        await access.login(Password("alice", b"pw"), PEER)
    assert time.monotonic() - started < 2.9
    await access.close()


async def test_a_service_that_fails_again_and_again_is_left_alone(ask, monkeypatch):
    monkeypatch.setattr(limits, "LOGIN_FAILURES_FREE", 100)
    Service.status = 500
    for number in range(limits.HOOK_FAILURES_MAX):
        assert "failed" in await refused(ask, f"user-{number}")
    Service.status = 200
    assert "does not answer" in await refused(ask)
    assert len(Service.asked) == limits.HOOK_FAILURES_MAX
