"""broker.http.guard: what was found out about a request holds while its body comes, or it is refused."""

import base64

import pytest

from broker.access.access import Access
from broker.access.passwords import hashed
from broker.clock import Clock
from broker.http.guard import IDENTITY, Guard
from broker.http.problems import Problem
from config.access_settings import AccessSettings, PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users

KEPT = hashed(b"pw")
RIGHT = PermissionSettings(write="^mine$")


class Requests:
    """What a guard lets through; `reload` has other users, or the same anew, before a body's part comes."""

    def __init__(self, path):
        self.path = path
        self.write(UserSettings(name="alice", password=KEPT, permissions=(RIGHT,)))
        self.settings = AccessSettings(users_file=str(path), anonymous="never")
        self.access = Access(self.settings, Clock())
        self.users = None

    def write(self, *users):
        save_users(self.path, UsersSettings(users=users))

    async def post(self, *parts):
        """Gives what the application received; before a part that is a list of users, these are read."""
        left = list(parts)

        async def receive():
            part = left.pop(0)
            if isinstance(part, list):
                self.write(*part)
                await self.access.take(self.access.prepare(self.settings))
                part = left.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(left)}

        received = []

        async def app(scope, receive, send):
            assert scope["state"][IDENTITY].user == "alice"
            while True:
                event = await receive()
                received.append(event["body"])
                if not event["more_body"]:
                    return

        shown = b"Basic " + base64.b64encode(b"alice:pw")
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mine/messages",
            "raw_path": b"/mine/messages",
            "query_string": b"",
            "headers": [(b"authorization", shown), (b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1),
            "state": {},
        }
        await Guard(app, self.access)(scope, receive, None)
        return received


@pytest.fixture
def requests(tmp_path):
    return Requests(tmp_path / "users.yaml")


SAME = UserSettings(name="alice", password=KEPT, permissions=(RIGHT,), max_connections=7)
OTHER = UserSettings(name="bob")


async def test_a_body_that_comes_in_parts_is_taken_while_the_user_may_do_the_same(requests):
    assert await requests.post(b"a", b"b") == [b"a", b"b"]
    assert await requests.post(b"a", [SAME, OTHER], b"b") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("users", "reason"),
    [
        ([OTHER], "no longer known"),
        ([UserSettings(name="alice", password=KEPT)], "permissions changed"),
        ([UserSettings(name="alice", password=KEPT, permissions=(RIGHT,), tags=("monitoring",))], "changed"),
    ],
    ids=["removed", "narrowed", "tags"],
)
async def test_a_body_that_ends_after_the_user_was_changed_is_refused(requests, users, reason):
    with pytest.raises(Problem, match=reason) as problem:
        await requests.post(b"a", users, b"b")
    assert problem.value.status == 403
