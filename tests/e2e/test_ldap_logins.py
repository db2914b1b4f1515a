"""Logins that a real directory vouches for: slapd, with the library and with a broker."""

import asyncio
import socket
import threading
import time

import pika
import pytest

from broker.access.access import Access
from broker.access.credentials import LoginRefused, Password, Peer
from broker.access.rights import Action, Kind
from broker.clock import Clock
from config import limits
from config.access_settings import AccessSettings, LdapSettings
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient, MqttRefused
from tests.e2e.slapd import BASE, FAILURES_MAX, PASSWORD, SEARCHER, SEARCHER_PASSWORD, SLAPD, Slapd

pytestmark = pytest.mark.skipif(SLAPD is None, reason="no slapd is installed")

ODD = "o,d=d+<o>#1"
PEOPLE = f"ou=people,{BASE}"
GROUPS = {
    "operators": ["ann", "both"],
    "readers": ["bob", "both", ODD, "wide*"],
    "others": ["nobody", "locked", "locked2", "clumsy"],
}
READ_ORDERS = {"vhost": "/", "read": "^orders$"}
MAPPED = (
    {"group": f"CN=Operators, ou=groups,{BASE}", "tags": ["administrator"], "permissions": [{"write": ".*"}]},
    {"group": f"cn=readers,ou=groups,{BASE}", "tags": ["monitoring"], "permissions": [READ_ORDERS]},
)


@pytest.fixture(scope="module")
def slapd(tmp_path_factory):
    slapd = Slapd(tmp_path_factory.mktemp("slapd"), GROUPS)
    (slapd.directory / "searcher").write_text(SEARCHER_PASSWORD + "\n")
    yield slapd
    slapd.stop()


def by_name(slapd, **changed):
    """Settings by which users bind with their names."""
    return {
        "servers": (f"ldap://localhost:{slapd.port}",),
        "start_tls": True,
        "ca_file": str(slapd.directory / "ca.crt"),
        "user_dn": f"uid={{username}},{PEOPLE}",
        "group_attribute": "",
        "group_base": f"ou=groups,{BASE}",
        "groups": MAPPED,
        **changed,
    }


def by_search(slapd, **changed):
    """Settings by which users are searched for."""
    return (
        by_name(
            slapd,
            servers=(f"ldaps://localhost:{slapd.tls_port}",),
            start_tls=False,
            user_dn="",
            bind_dn=SEARCHER,
            bind_password_file=str(slapd.directory / "searcher"),
            user_base=BASE,
        )
        | changed
    )


class Entrance:
    """An `Access` that asks a directory, in an event loop of its own."""

    def __init__(self, settings):
        self.loop = asyncio.new_event_loop()
        self.access = Access(AccessSettings(ldap=LdapSettings(**settings), anonymous="never"), Clock())

    def login(self, user, password=PASSWORD):
        password = password if isinstance(password, bytes) else password.encode()
        return self.loop.run_until_complete(self.access.login(Password(user, password), Peer("10.0.0.1")))

    def refused(self, user, password=PASSWORD):
        with pytest.raises(LoginRefused) as error:
            self.login(user, password)
        assert error.value.told == LoginRefused.TOLD
        return error.value.reason

    def close(self):
        self.loop.run_until_complete(self.access.close())
        self.loop.close()


@pytest.fixture
def enter(monkeypatch):
    monkeypatch.setattr(limits, "LOGIN_FAILURES_FREE", 1_000)
    made = []

    def make(settings):
        made.append(Entrance(settings))
        return made[-1]

    yield make
    for entrance in made:
        entrance.close()


WAYS = pytest.mark.parametrize("settings_of", [by_name, by_search])


@WAYS
def test_groups_give_tags_and_permissions(slapd, enter, settings_of):
    entrance = enter(settings_of(slapd))
    ann, bob, both = (entrance.login(user) for user in ("ann", "bob", "both"))
    assert (ann.user, ann.tags) == ("ann", {"administrator"})
    assert (bob.user, bob.tags) == ("bob", {"monitoring"})
    assert both.tags == {"administrator", "monitoring"}
    assert not ann.enter("/").may(Action.READ, Kind.QUEUE, "orders")
    assert bob.enter("/").may(Action.READ, Kind.QUEUE, "orders")
    assert not bob.enter("/").may(Action.WRITE, Kind.QUEUE, "orders")
    identity = both.enter("/")
    assert identity.may(Action.READ, Kind.QUEUE, "orders")
    assert identity.may(Action.WRITE, Kind.QUEUE, "any")
    assert not identity.may(Action.READ, Kind.QUEUE, "any")
    assert not entrance.login("nobody").may_enter("/")


@WAYS
def test_wrong_passwords_and_unknown_users_are_refused(slapd, enter, settings_of):
    entrance = enter(settings_of(slapd))
    for user, password in (
        ("ann", "wrong"),
        ("stranger", PASSWORD),
        ("ann", ""),
        ("", PASSWORD),
        ("ann", b"\xff"),
    ):
        assert entrance.refused(user, password) == LoginRefused.TOLD


@WAYS
def test_names_are_no_patterns_and_no_other_names(slapd, enter, settings_of):
    entrance = enter(settings_of(slapd))
    assert entrance.login(ODD).user == ODD
    assert entrance.login("wide*").user == "wide*"
    for user in (
        "*",
        "an*",
        "ann)(uid=*",
        f"ann,{PEOPLE}",
        "ann+cn=ann",
        "(uid=ann)",
        "a\\6en",
        "wideX",
        "\\61nn",
    ):
        assert entrance.refused(user)


@WAYS
def test_a_user_has_one_name_however_it_is_typed(slapd, enter, settings_of):
    entrance = enter(settings_of(slapd))
    assert entrance.login("ANN").user == "ann"
    entrance = enter(settings_of(slapd, name_attribute=""))
    assert entrance.login("ANN").user == "ANN"


@WAYS
def test_who_is_locked_out_does_not_come_in(slapd, enter, settings_of):
    user = "locked" if settings_of is by_name else "locked2"
    entrance = enter(settings_of(slapd, cache_ms=0, cache_refused_ms=0))
    assert entrance.login(user)
    for number in range(FAILURES_MAX):
        assert entrance.refused(user, f"wrong{number}")
    assert entrance.refused(user) == LoginRefused.TOLD
    assert entrance.login("ann")


def test_answers_are_kept_as_long_as_they_may_be(slapd, enter):
    entrance = enter(by_search(slapd, cache_ms=60_000))
    assert entrance.login("ann")
    slapd.stop()
    try:
        assert entrance.login("ann").tags == {"administrator"}
        assert entrance.access.login_at_once(Password("ann", PASSWORD.encode()), Peer("10.0.0.1"))
        assert "failed" in entrance.refused("bob")
    finally:
        slapd.start()
    assert entrance.login("bob")


def test_a_reload_gives_groups_their_new_rights_and_forgets_what_was_kept(slapd, enter):
    entrance = enter(by_search(slapd))
    login = entrance.login("bob")
    identity = login.enter("/")
    assert identity.may(Action.READ, Kind.QUEUE, "orders")
    entrance.access.present.enter(identity, lambda reason: None)
    more = {"group": f"cn=readers,ou=groups,{BASE}", "permissions": [{"read": ".*"}]}

    def take(*groups):
        settings = AccessSettings(ldap=LdapSettings(**by_search(slapd, groups=groups)), anonymous="never")
        return entrance.loop.run_until_complete(entrance.access.take(entrance.access.prepare(settings)))

    assert take(more) == 0
    assert identity.may(Action.READ, Kind.QUEUE, "any")
    assert entrance.access.login_at_once(Password("bob", PASSWORD.encode()), Peer("10.0.0.1")) is None
    assert not entrance.access.current(login).tags
    assert take() == 1


def test_a_login_ends_where_it_is_said_how_long_it_lasts(slapd, enter):
    login = enter(by_search(slapd, expires_ms=60_000)).login("ann")
    assert abs(login.expires_at_ms / 1000 - time.time() - 60) < 20
    assert enter(by_search(slapd)).login("ann").expires_at_ms is None


def test_servers_are_asked_one_after_the_other(slapd, enter):
    servers = ("ldap://127.0.0.1:9", "ldap://localhost:9", f"ldap://localhost:{slapd.port}")
    assert enter(by_name(slapd, servers=servers)).login("ann")


def test_a_server_that_cannot_prove_its_name_is_told_no_password(slapd, enter, tmp_path):
    from broker.network.tls.making import Authority, write_pair

    other = Authority.made()
    write_pair(tmp_path, "ca", other.key, other.certificate)
    wrong_authority = {"ca_file": str(tmp_path / "ca.crt")}
    for settings_of in (by_name, by_search):
        assert "failed" in enter(settings_of(slapd, **wrong_authority)).refused("ann")
        servers = tuple(each.replace("localhost", "127.0.0.1") for each in settings_of(slapd)["servers"])
        assert "failed" in enter(settings_of(slapd, servers=servers)).refused("ann")


def test_a_searcher_that_may_not_come_in_lets_nobody_in(slapd, enter, tmp_path):
    for secret in ("wrong", ""):
        (tmp_path / "secret").write_text(secret)
        entrance = enter(by_search(slapd, bind_password_file=str(tmp_path / "secret")))
        assert "failed" in entrance.refused("ann")


def test_a_filter_that_finds_several_users_finds_none_and_closes_for_nobody(slapd, enter):
    entrance = enter(by_search(slapd, user_filter="(|(uid={username})(uid=ann))", cache_refused_ms=0))
    for _ in range(limits.HOOK_FAILURES_MAX + 1):
        assert "more than one" in entrance.refused("bob")
    assert entrance.login("ann")


@pytest.fixture
def silent():
    """The port of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        taken = []

        def take():
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield server.getsockname()[1]
    for each in taken:
        each.close()


@pytest.mark.parametrize("settings_of", [by_name, by_search])
def test_a_server_that_says_nothing_is_passed_by(slapd, enter, silent, settings_of):
    settings = settings_of(slapd, timeout_ms=4_000)
    scheme = settings["servers"][0].partition(":")[0]
    entrance = enter({**settings, "servers": (f"{scheme}://localhost:{silent}", *settings["servers"])})
    begun = time.monotonic()
    assert entrance.login("ann")
    assert entrance.login("bob")
    assert time.monotonic() - begun < 4 + 4


@pytest.mark.parametrize("scheme", ["ldap", "ldaps"])
def test_a_slow_server_holds_up_nobody_and_is_left_alone(slapd, enter, silent, scheme):
    servers = (f"{scheme}://127.0.0.1:{silent}",)
    entrance = enter(by_name(slapd, servers=servers, start_tls=False, timeout_ms=300))
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = entrance.loop.create_task(tick())
    begun = time.monotonic()
    for _ in range(limits.HOOK_FAILURES_MAX):
        assert "failed" in entrance.refused("ann")
    assert time.monotonic() - begun < 15
    assert ticks > 30
    assert "does not answer" in entrance.refused("ann")
    ticking.cancel()


def test_connections_are_used_again_and_those_that_broke_are_not(slapd, enter):
    entrance = enter(by_search(slapd, cache_ms=0, cache_refused_ms=0))
    directory = entrance.access._accounts.ways[0]._directory
    made = []
    connect = directory._connect

    def make():
        made.append(connect())
        return made[-1]

    directory._connect = directory._for_users._make = make
    for _ in range(5):
        assert entrance.login("ann")
        assert entrance.refused("clumsy", "wrong")
    assert len(made) == 2
    slapd.stop()
    slapd.start()
    assert entrance.login("ann")
    assert len(made) == 4


def test_many_log_in_at_once_through_few_connections(slapd, enter):
    entrance = enter(by_search(slapd, connections=2))

    async def all_of_them():
        users = ("ann", "bob", "both", "nobody", "stranger") * 6
        peers = [Peer(f"10.0.1.{number}") for number in range(len(users))]
        logins = [
            entrance.access.login(Password(user, PASSWORD.encode()), peer)
            for user, peer in zip(users, peers, strict=True)
        ]
        return users, await asyncio.gather(*logins, return_exceptions=True)

    users, found = entrance.loop.run_until_complete(all_of_them())
    for user, each in zip(users, found, strict=True):
        assert isinstance(each, LoginRefused) if user == "stranger" else each.user == user


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, slapd):
    directory = tmp_path_factory.mktemp("ldap")
    ldap = {**by_search(slapd), "groups": [*MAPPED], "servers": [f"ldaps://localhost:{slapd.tls_port}"]}
    process = BrokerProcess(directory, {"access": {"anonymous": "never", "ldap": ldap}}).start()
    yield process
    process.kill9()
    for secret in (PASSWORD, SEARCHER_PASSWORD, "guessed"):
        assert secret not in process.log


def test_people_of_the_directory_come_in_over_each_protocol(guarded, name):
    connection = amqp.connect(guarded.amqp_port, user="bob", password=PASSWORD)
    with pytest.raises(amqp.ChannelClosedByBroker, match="refused for user 'bob'"):
        connection.channel().basic_get("other")
    connection.close()
    client = MqttClient(guarded.mqtt_port, username="ann", password=PASSWORD).connect()
    assert client.publish("any/topic") in (0, 0x10)
    client.end()
    for user in ("clumsy", "stranger"):
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            amqp.connect(guarded.amqp_port, user=user, password="guessed")
        with pytest.raises(MqttRefused):
            MqttClient(guarded.mqtt_port, username=user, password="guessed").connect()
    (line, *_) = [line for line in guarded.log.splitlines() if "amqp.login_refused" in line]
    assert "user=clumsy" in line


def test_a_broker_whose_directory_is_away_says_so_and_goes_on(guarded, slapd):
    slapd.stop()
    try:
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            amqp.connect(guarded.amqp_port, user="nobody", password=PASSWORD)
        assert "access.ldap_failed" in guarded.log
        assert "the directory that knows the users failed" in guarded.log
    finally:
        slapd.start()


def test_settings_that_would_send_passwords_in_the_clear_are_refused():
    for servers, more, why in (
        (["ldap://ldap.example"], {}, "in the clear"),
        (["ldaps://ldap.example"], {"start_tls": True}, "TLS already"),
        (["http://ldap.example"], {}, "must be ldap://"),
        (["ldaps://me:pw@ldap.example"], {}, "user or password"),
        (["ldaps://ldap.example/o=x"], {}, "must be ldap://"),
        ([], {}, "1 to"),
    ):
        with pytest.raises(ValueError, match=why):
            LdapSettings(servers=servers, user_dn="uid={username}", **more)


def test_settings_that_find_nobody_are_refused():
    for more, why in (
        ({}, "needs user_dn"),
        ({"user_dn": "uid={username}", "user_base": "o=x"}, "needs user_dn"),
        ({"user_dn": "uid=x"}, "user_dn has no"),
        ({"user_base": "o=x", "user_filter": "(uid=ann)"}, "user_filter has no"),
        ({"user_base": "o=x", "user_filter": "uid={username}"}, "in parentheses"),
        ({"user_base": "o=x", "group_base": "o=x", "group_filter": "(a=b)"}, "group_filter has no"),
        ({"user_base": "o=x", "bind_dn": "cn=x"}, "belong together"),
    ):
        with pytest.raises(ValueError, match=why):
            LdapSettings(servers=["ldaps://ldap.example"], **more)
