"""broker.access.web_hook: a service is asked, and what is not clear lets nobody in."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from broker.access.access import Access
from broker.access.credentials import LoginRefused, Password, Peer
from broker.access.rights import Action, Kind
from broker.access.web_hook import WebHook
from broker.clock import Clock
from config import limits
from config.access_settings import AccessSettings, HookSettings

PEER = Peer("10.0.0.1")
PATIENCE_S = 20.0
NO_TIMES: tuple[object, ...] = ("5", None, True, [], 0, -1, 1e400, 1e300, float("nan"))
ALLOWED = {"allow": True, "user": "alice", "tags": ["monitoring"], "permissions": [{"read": "^a$"}]}


class Service(BaseHTTPRequestHandler):
    """Answers `status` and `said` once `may_answer`; keeps what it was asked."""

    status = 200
    said: object = ALLOWED
    may_answer = threading.Event()
    asked: list = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.asked.append((json.loads(body), self.headers.get("authorization")))
        self.may_answer.wait(PATIENCE_S)
        self.send_response(self.status)
        self.end_headers()
        said = self.said if isinstance(self.said, bytes) else json.dumps(self.said).encode()
        self.wfile.write(said)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def service():
    Service.status, Service.said, Service.asked = 200, ALLOWED, []
    Service.may_answer.set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    Service.may_answer.set()
    server.shutdown()
    server.server_close()


class SetClock(Clock):
    """Goes on by `pass_s` only."""

    def __init__(self):
        self.passed_s = 0.0

    def pass_s(self, seconds):
        self.passed_s += seconds

    def now_ms(self):
        return 1_800_000_000_000 + int(self.passed_s * 1000)

    def monotonic(self):
        return 1000 + self.passed_s


@pytest.fixture
async def timed(service):
    """An `Access` that keeps answers for a minute, and its clock."""
    clock = SetClock()
    hook = HookSettings(url=service, timeout_ms=20_000, cache_ms=60_000, cache_refused_ms=5_000)
    access = Access(AccessSettings(http=hook, anonymous="never"), clock)
    yield access, clock
    await access.close()


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
        (200, b"[" * 60_000),
        (200, {"allow": True, "user": "alice\n"}),
        (200, {"allow": True, "user": "\ud800"}),
        (200, {"allow": True, "user": "\u6f22" * 100}),
        *((200, {**ALLOWED, "expires_in": each}) for each in NO_TIMES),
    ],
)
async def test_anything_but_a_clear_yes_lets_nobody_in(ask, status, said):
    Service.status, Service.said = status, said
    assert await refused(ask)


async def test_a_slow_service_lets_nobody_in(service):
    Service.may_answer.clear()
    access = Access(AccessSettings(http=HookSettings(url=service, timeout_ms=100)), Clock())
    with pytest.raises(LoginRefused, match="failed"):
        await access.login(Password("alice", b"pw"), PEER)
    assert not Service.may_answer.is_set()
    await access.close()


async def test_a_service_that_fails_again_and_again_is_left_alone(ask, monkeypatch):
    monkeypatch.setattr(limits, "LOGIN_FAILURES_FREE", 100)
    Service.status = 500
    for number in range(limits.HOOK_FAILURES_MAX):
        assert "failed" in await refused(ask, f"user-{number}")
    Service.status = 200
    assert "does not answer" in await refused(ask)
    assert len(Service.asked) == limits.HOOK_FAILURES_MAX


async def test_an_answer_that_was_kept_long_enough_is_asked_for_again(timed):
    access, clock = timed
    alice = Password("alice", b"pw")
    await access.login(alice, PEER)
    clock.pass_s(59)
    assert access.login_at_once(alice, PEER) is not None
    Service.said = {"allow": False}
    clock.pass_s(2)
    assert access.login_at_once(alice, PEER) is None
    with pytest.raises(LoginRefused):
        await access.login(alice, PEER)
    Service.said = ALLOWED
    clock.pass_s(6)
    assert (await access.login(alice, PEER)).user == "alice"


async def test_a_login_is_over_when_the_service_said(timed):
    access, clock = timed
    alice = Password("alice", b"pw")
    Service.said = {**ALLOWED, "expires_in": 2.5}
    found = await access.login(alice, PEER)
    assert found.expires_at_ms == clock.now_ms() + 2_500
    clock.pass_s(2)
    assert access.login_at_once(alice, PEER) is found
    clock.pass_s(1)
    assert access.login_at_once(alice, PEER) is None
    Service.said = {"allow": False}
    with pytest.raises(LoginRefused):
        await access.login(alice, PEER)


async def test_a_login_that_has_ended_by_now_is_given_to_nobody(timed, monkeypatch):
    """Whatever gives it, such as a way that keeps it."""
    access, clock = timed
    alice = Password("alice", b"pw")
    Service.said = {**ALLOWED, "expires_in": 2}
    found = await access.login(alice, PEER)
    monkeypatch.setattr(WebHook, "login_at_once", lambda self, credentials: found)
    assert access.login_at_once(alice, PEER) is found
    clock.pass_s(2)
    assert access.login_at_once(alice, PEER) is None


async def test_who_logs_in_at_the_same_time_shares_a_client_and_its_end(service, monkeypatch):
    made = []

    class Counted(httpx.AsyncClient):
        def __init__(self, *arguments, **options):
            made.append(self)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(httpx, "AsyncClient", Counted)
    hook = WebHook(HookSettings(url=service, timeout_ms=20_000), Clock())
    await asyncio.gather(*[hook.login(Password(f"user-{number}", b"pw"), PEER) for number in range(5)])
    await hook.close()
    assert [client.is_closed for client in made] == [True]
    with pytest.raises(LoginRefused):
        await hook.login(Password("late", b"pw"), PEER)
    assert len(made) == 1


async def test_a_token_file_that_cannot_be_read_lets_nobody_in_until_it_can(service, tmp_path):
    hook = HookSettings(url=service, token_file=str(tmp_path / "token"), timeout_ms=20_000)
    access = Access(AccessSettings(http=hook), Clock())
    with pytest.raises(LoginRefused, match="failed"):
        await access.login(Password("alice", b"pw"), PEER)
    (tmp_path / "token").write_text("shown")
    assert (await access.login(Password("alice", b"pw"), PEER)).user == "alice"
    await access.close()


@pytest.mark.parametrize("name", ["\ud800", "alice"])
async def test_what_one_user_asks_does_not_have_the_service_left_alone(ask, monkeypatch, name):
    """A name that cannot be sent, and one that the service answers senselessly."""
    monkeypatch.setattr(limits, "LOGIN_FAILURES_FREE", 100)
    Service.said = b"no json"
    for _ in range(2 * limits.HOOK_FAILURES_MAX):
        assert await refused(ask, name)
    Service.said = ALLOWED
    assert (await ask("bob")).user == "alice"
