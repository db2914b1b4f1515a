"""`sluicemq user`: the users file is changed whole, and for its owner only."""

import json

import pytest
from typer.testing import CliRunner

from broker.access.passwords import is_password
from broker.cli import app
from config.users_file import load_users


@pytest.fixture
def user(tmp_path):
    """Runs `sluicemq user`; gives its exit code and output."""
    file = tmp_path / "users.yaml"

    def run(command, *arguments, stdin=None):
        result = CliRunner().invoke(app, ["user", command, *arguments, "--file", str(file)], input=stdin)
        return result.exit_code, result.output

    run.file = file  # type: ignore[attr-defined]
    return run


def add(user, name, *arguments, password="secret\n"):
    return user("add", name, "--password-stdin", *arguments, stdin=password)


def test_a_user_without_patterns_may_do_everything_in_the_default_virtual_host(user):
    assert add(user, "alice", "--tag", "administrator")[0] == 0
    (alice,) = load_users(user.file).users
    (permission,) = alice.permissions
    assert is_password(alice.password, b"secret")
    assert alice.tags == ("administrator",)
    assert (permission.vhost, permission.configure, permission.write, permission.read) == (
        "/",
        ".*",
        ".*",
        ".*",
    )
    assert user.file.stat().st_mode & 0o777 == 0o600


def test_patterns_allow_nothing_else(user):
    add(user, "bob", "--read", "^a", "--vhost", "v")
    (permission,) = load_users(user.file).users[0].permissions
    assert (permission.vhost, permission.configure, permission.write, permission.read) == ("v", "", "", "^a")


def test_users_are_listed_changed_and_removed(user):
    add(user, "alice")
    add(user, "bob", "--write", "^b")
    code, output = user("ls", "--json")
    assert code == 0
    assert [(row["name"], row["write"]) for row in json.loads(output)] == [("alice", ".*"), ("bob", "^b")]
    assert "argon2" not in output
    assert user("passwd", "bob", "--password-stdin", stdin="other")[0] == 0
    assert is_password(load_users(user.file).users[1].password, b"other")
    assert user("rm", "alice")[0] == 0
    assert [one.name for one in load_users(user.file).users] == ["bob"]


def test_what_cannot_be_done_changes_nothing_and_says_why(user):
    add(user, "alice")
    before = user.file.read_bytes()
    for arguments, code, reason in (
        (("add", "alice", "--password-stdin"), 1, "already"),
        (("add", "bob", "--password-stdin", "--read", "("), 1, "regular expression"),
        (("add", "bob", "--password-stdin", "--tag", "root"), 1, "tags"),
        (("add", "b\nb", "--password-stdin"), 1, "control"),
        (("rm", "carol"), 1, "no user"),
        (("passwd", "carol", "--password-stdin"), 1, "no user"),
    ):
        found, output = user(*arguments, stdin="secret")
        assert found == code, arguments
        assert reason in output, arguments
        assert "secret" not in output
    assert add(user, "carol", password="\n")[0] == 1
    assert user.file.read_bytes() == before
    user.file.write_text("users:\n  - name: x\n    passwort: y\n")
    assert user("ls")[0] == 2
    assert "users.yaml:3: users[0].passwort: unknown key" in user("ls")[1]
