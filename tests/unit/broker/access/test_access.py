"""broker.access.access: who comes in, from where, and how soon."""

import asyncio
from pathlib import Path

import pytest

from broker.access import passwords
from broker.access.access import Access
from broker.access.credentials import Anonymous, LoginRefused, Password, Peer
from broker.access.login import Login
from broker.access.passwords import hashed
from broker.clock import Clock
from config import limits
from config.access_settings import AccessSettings, PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users
from tests.waiting import turns

HERE = Peer("127.0.0.1")
ELSEWHERE = Peer("10.0.0.1")


def login(access, credentials, peer=HERE):
    return asyncio.run(access.login(credentials, peer))


def refusal(access, credentials, peer=HERE):
    with pytest.raises(LoginRefused) as refused:
        login(access, credentials, peer)
    return refused.value.reason


@pytest.fixture
def users_file(tmp_path):
    path = tmp_path / "users.yaml"
    right = PermissionSettings(configure="^a", write="^b", read="^c")
    alice = UserSettings(
        name="alice",
        password=hashed(b"secret"),
        tags=("monitoring",),
        permissions=(right,),
        max_connections=7,
    )
    save_users(path, UsersSettings(users=(alice, UserSettings(name="bob"))))
    return str(path)


def test_without_a_users_file_there_is_guest_on_this_machine_only():
    access = Access(AccessSettings(anonymous="never"), Clock())
    assert login(access, Password("guest", b"guest")).user == "guest"
    assert login(access, Password("guest", b"guest")).is_administrator
    assert "machine" in refusal(access, Password("guest", b"guest"), ELSEWHERE)
    assert refusal(access, Password("guest", b"wrong")) == LoginRefused.TOLD
    assert refusal(access, Password("root", b"guest")) == LoginRefused.TOLD
    assert not access.admits_others


@pytest.mark.parametrize(
    ("anonymous", "here", "elsewhere"),
    [("never", False, False), ("loopback", True, False), ("always", True, True)],
)
def test_strangers_come_in_from_where_the_settings_say(anonymous, here, elsewhere):
    may = (PermissionSettings(vhost="/", read="^news"),)
    access = Access(AccessSettings(anonymous=anonymous, anonymous_permissions=may), Clock())
    for peer, admitted in ((HERE, here), (ELSEWHERE, elsewhere)):
        if admitted:
            found = login(access, Anonymous(), peer)
            assert not found.user
            assert not found.may_enter("other")
            assert not found.tags
        else:
            assert refusal(access, Anonymous(), peer)


@pytest.mark.parametrize(
    ("asked_for", "is_let_in"),
    [("", True), ("localhost", True), ("127.0.0.1", True), ("::1", True), ("192.0.2.7", True)]
    + [("rebound.example", False), ("localhost.rebound.example", False), ("?", False)],
)
@pytest.mark.parametrize(
    "credentials", [Anonymous(), Password("guest", b"guest")], ids=["anonymous", "guest"]
)
def test_without_a_secret_a_page_comes_in_only_from_a_name_that_is_this_machines(
    credentials, asked_for, is_let_in
):
    """A page has its own name changed into 127.0.0.1, and then asks for that name."""
    access = Access(AccessSettings(), Clock())
    peer = Peer("127.0.0.1", asked_for)
    if is_let_in:
        assert login(access, credentials, peer)
    else:
        assert "another machine" in refusal(access, credentials, peer)


def test_with_a_password_the_name_that_was_asked_for_does_not_matter(users_file):
    access = Access(AccessSettings(users_file=users_file), Clock())
    assert login(access, Password("alice", b"secret"), Peer("10.0.0.1", "broker.example")).user == "alice"


def test_users_come_in_with_their_password_from_anywhere(users_file):
    access = Access(AccessSettings(users_file=users_file), Clock())
    found = login(access, Password("alice", b"secret"), ELSEWHERE)
    assert (found.user, found.tags) == ("alice", {"monitoring"})
    assert access.quotas == ({}, {"alice": {"connections": 7}})
    assert found.vhosts == ["/"]
    assert access.admits_others


def test_nothing_tells_why_a_login_failed(users_file):
    access = Access(AccessSettings(users_file=users_file), Clock())
    for wrong in (
        Password("alice", b"wrong"),
        Password("nobody", b"secret"),
        Password("bob", b""),  # who has no password
        Password("guest", b"guest"),
        Password("alice", b"x" * 100_000),
    ):
        assert refusal(access, wrong, Peer("10.0.0.2")) == LoginRefused.TOLD


async def test_who_comes_back_soon_is_known_at_once(users_file):
    access = Access(AccessSettings(users_file=users_file), Clock())
    right = Password("alice", b"secret")
    assert access.login_at_once(right, ELSEWHERE) is None
    await access.login(right, ELSEWHERE)
    assert access.login_at_once(right, ELSEWHERE) is not None
    assert access.login_at_once(Password("alice", b"Secret"), ELSEWHERE) is None
    assert access.login_at_once(Password("bob", b"secret"), ELSEWHERE) is None


@pytest.fixture
def looked_at(monkeypatch):
    """The passwords that were looked at."""
    found = []
    is_password = passwords.is_password

    def noted(kept, password):
        found.append(password)
        return is_password(kept, password)

    monkeypatch.setattr(passwords, "is_password", noted)
    return found


async def outcomes(access, tries, peer=ELSEWHERE):
    found = await asyncio.gather(*[access.login(each, peer) for each in tries], return_exceptions=True)
    return [isinstance(each, Login) for each in found]


async def test_a_password_that_was_found_right_is_known_after_the_users_are_read_anew_unless_it_changed(
    users_file, looked_at
):
    settings = AccessSettings(users_file=users_file)
    access = Access(settings, Clock())
    right = Password("alice", b"secret")
    await access.login(right, ELSEWHERE)
    await access.take(access.prepare(settings))
    assert access.login_at_once(right, ELSEWHERE) is access.current(access.login_at_once(right, ELSEWHERE))
    save_users(
        Path(users_file), UsersSettings(users=(UserSettings(name="alice", password=hashed(b"secret")),))
    )
    await access.take(access.prepare(settings))
    assert access.login_at_once(right, ELSEWHERE) is None  # the same, but with another salt
    assert len(looked_at) == 1


@pytest.fixture
def no_slowed_one_is_looked_at(monkeypatch):
    monkeypatch.setattr(limits, "LOGIN_WAIT_S_MAX", 0.4)
    monkeypatch.setattr(limits, "LOGIN_DELAY_S_MIN", limits.LOGIN_DELAY_S_MAX)


@pytest.mark.usefixtures("no_slowed_one_is_looked_at")
async def test_guesses_beside_each_other_count_before_most_of_them_are_looked_at(users_file, looked_at):
    access = Access(AccessSettings(users_file=users_file), Clock())
    guesses = [Password("alice", b"guess-%d" % number) for number in range(100)]
    assert not any(await outcomes(access, [*guesses, Password("alice", b"secret")]))
    assert len(looked_at) <= limits.LOGIN_FAILURES_FREE + 1 + limits.LOGINS_OF_USER_AT_ONCE_MAX


@pytest.mark.usefixtures("no_slowed_one_is_looked_at")
async def test_guesses_of_many_users_beside_each_other_count_too(users_file, looked_at):
    access = Access(AccessSettings(users_file=users_file), Clock())
    await outcomes(access, [Password(f"user-{number}", b"guess") for number in range(100)])
    assert len(looked_at) <= limits.LOGIN_FAILURES_FREE + 1 + limits.LOGINS_AT_ONCE_MAX


async def test_who_comes_with_the_right_password_a_hundred_times_at_once_comes_in(users_file, looked_at):
    access = Access(AccessSettings(users_file=users_file), Clock())
    assert all(await outcomes(access, [Password("alice", b"secret")] * 100))
    assert len(looked_at) <= limits.LOGINS_OF_USER_AT_ONCE_MAX


async def test_somebody_at_a_new_address_comes_in_while_strangers_guess(users_file):
    access = Access(AccessSettings(users_file=users_file), Clock())
    for number in range(12):
        guesses = [Password("alice", b"guess-%d" % each) for each in range(3)]
        assert not any(await outcomes(access, guesses, Peer(f"10.0.1.{number}")))
    started = asyncio.get_running_loop().time()
    assert (await access.login(Password("alice", b"secret"), ELSEWHERE)).user == "alice"
    assert asyncio.get_running_loop().time() - started < limits.LOGIN_DELAY_OF_USER_S_MAX


@pytest.mark.parametrize("password", [b"secret", b"other"])
async def test_who_is_logging_in_while_the_users_are_read_anew_gets_an_answer_of_the_new_ones(
    users_file, password
):
    """More at once than there are threads, so that most of them have not begun."""
    access = Access(AccessSettings(users_file=users_file), Clock())
    peers = [Peer(f"10.0.0.{number}") for number in range(4 * limits.PASSWORD_THREADS_MAX)]
    waiting = [asyncio.ensure_future(access.login(Password("alice", b"secret"), peer)) for peer in peers]
    await turns()
    other = UserSettings(name="alice", password=hashed(password), permissions=())
    save_users(Path(users_file), UsersSettings(users=(other,)))
    await access.take(access.prepare(AccessSettings(users_file=users_file)))
    for login in await asyncio.gather(*waiting, return_exceptions=True):
        if password == b"secret":
            assert isinstance(login, Login)
            assert not login.tags
            assert not login.may_enter("/")
        else:
            assert isinstance(login, LoginRefused)


async def test_who_logged_in_before_the_users_were_read_anew_is_looked_at_again(users_file):
    access = Access(AccessSettings(users_file=users_file), Clock())
    login = await access.login(Password("alice", b"secret"), ELSEWHERE)
    assert access.current(login).tags == {"monitoring"}
    save_users(Path(users_file), UsersSettings(users=(UserSettings(name="bob"),)))
    await access.take(access.prepare(AccessSettings(users_file=users_file)))
    with pytest.raises(LoginRefused):
        access.current(login)


@pytest.mark.parametrize(
    ("user", "has_users", "found"),
    [
        ("alice", True, "alice"),
        ("guest", False, "guest"),
        ("gone", True, None),
        ("", False, ""),
        ("", True, None),
    ],
)
def test_somebody_of_an_earlier_start_may_do_what_such_a_name_may_now(users_file, user, has_users, found):
    """Also where the store does not say what vouched for them."""
    anonymous = "never" if has_users else "loopback"
    access = Access(AccessSettings(users_file=users_file if has_users else "", anonymous=anonymous), Clock())
    if found is None:
        with pytest.raises(LoginRefused):
            access.current(access.earlier(user, ""))
    else:
        assert access.current(access.earlier(user, "")).user == found


def test_credentials_do_not_show_the_password():
    assert "secret" not in repr(Password("alice", b"secret"))
    assert "argon2" not in repr(UserSettings(name="alice", password="$argon2id$v=19$whatever"))
