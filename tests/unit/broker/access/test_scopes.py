"""broker.access.scopes: what RabbitMQ 4.3.6 allows by scopes is allowed, and nothing else."""

import asyncio
import json
from pathlib import Path

import jwt
import pytest

from broker.access.access import Access
from broker.access.credentials import LoginRefused, Password, Peer
from broker.access.rights import Action, Kind
from broker.clock import Clock
from config import limits
from config.access_settings import AccessSettings, PermissionSettings, UserSettings, UsersSettings
from config.token_settings import TokenSettings
from config.users_file import save_users
from tests.vectors.record_scopes import OWN, RECORDED, TOPIC_EXCHANGES, claims_of

SECRET = "0123456789abcdef0123456789abcdef"
PEER = Peer("10.0.0.1")
ALIASES = {"boss": "rabbitmq.tag:administrator rabbitmq.read:*/*"}
RECORDED_CASES = json.loads(RECORDED.read_text("utf-8"))

DIFFERENT = {
    ("rabbitmq.configure:*/*b", "configure", "/", "abb"): "a `*` may be any text, also one with what follows",
    ("rabbitmq.configure:team%2Fa/a*c rabbitmq.configure:%2F/a*b*c", "configure", "/", "abcc"): "so",
    ("rabbitmq.configure:{vhost}/q-{vhost}", "enter", "/"): "a variable means its text, a slash, too",
}
"""What is allowed here and not there, and why."""


@pytest.fixture
def accept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes an `Access` as the RabbitMQ of the records was, or as the settings say."""
    monkeypatch.setattr(limits, "LOGIN_FAILURES_FREE", 1_000)
    (tmp_path / "secret").write_text(SECRET)

    def make(users_file: str = "", **settings) -> Access:
        settings.setdefault("resource_server_id", "rabbitmq")
        tokens = TokenSettings(secret_file=str(tmp_path / "secret"), algorithms=("HS256",), **settings)
        access = Access(AccessSettings(jwt=tokens, users_file=users_file), Clock())
        access.exchange_types.is_topic = lambda vhost, name: name in (*TOPIC_EXCHANGES, "amq.topic")
        return access

    return make


def login(access: Access, **claims):
    token = jwt.encode(claims_of(claims), SECRET, "HS256")
    return asyncio.run(access.login(Password("", token.encode()), PEER))


def allows(access: Access, claims, what: str, vhost: str, *names: str) -> bool:
    try:
        found = login(access, **claims)
    except LoginRefused:
        return False
    if what == "enter" or not found.may_enter(vhost):
        return found.may_enter(vhost)
    identity = found.enter(vhost)
    if what == "configure":
        return identity.may(Action.CONFIGURE, Kind.QUEUE, *names)
    if what == "read":
        return identity.may(Action.READ, Kind.QUEUE, *names)
    exchange, key = names
    if what == "bind":
        own = identity.may(Action.CONFIGURE, Kind.QUEUE, OWN) and identity.may(Action.WRITE, Kind.QUEUE, OWN)
        may = identity.may(Action.READ, Kind.EXCHANGE, exchange)
        return own and may and identity.may_use_keys(Action.READ, exchange, key)
    may = identity.may(Action.WRITE, Kind.EXCHANGE, exchange)
    return may and (not exchange or identity.may_use_keys(Action.WRITE, exchange, key))


@pytest.mark.parametrize("case", RECORDED_CASES, ids=lambda case: json.dumps(case["claims"])[:60])
def test_scopes_allow_what_they_allow_in_rabbitmq(accept, case):
    access = accept(
        scope_aliases=ALIASES,
        additional_scopes_key="roles extra.deep",
        preferred_username_claims=("user_name",),
    )
    for expected, *asked in case.get("asked", ()):
        differs = (str(case["claims"].get("scope")), *asked) in DIFFERENT
        assert allows(access, case["claims"], *asked) == (expected or differs), asked
    if "tags" in case:
        found = login(access, **case["claims"])
        assert sorted(found.tags) == case["tags"]
        assert found.user == (case["user"] if case["user"] != "unknown" else "device-7")


@pytest.mark.parametrize(
    ("scope", "key", "is_allowed"),
    [
        ("rabbitmq.read:*/events/a.*", "a.b", True),
        ("rabbitmq.read:*/events/a.*", "a.*", True),
        ("rabbitmq.read:*/events/a.*", "a.b.#", True),
        ("rabbitmq.read:*/events/a.*", "a.#", False),  # which matches `a`, too
        ("rabbitmq.read:*/events/a.b rabbitmq.read:*/events/a.b.*", "a.b.#", True),
        ("rabbitmq.read:*/events/*", "#", True),
        ("rabbitmq.read:*/events", "a", False),
        ("rabbitmq.read:*/events/%zz", "a.#", False),
    ],
)
def test_a_binding_with_wildcards_is_covered_when_every_key_is(accept, scope, key, is_allowed):
    identity = login(accept(), scope=scope).enter("/")
    assert identity.may_use_keys(Action.READ, "events", key) == is_allowed


def test_mqtt_topics_are_keys_of_amq_topic(accept):
    scope = "rabbitmq.write:*/amq.topic/sensors.* rabbitmq.read:*/*/cmd.{client} rabbitmq.read:*/q"
    identity = login(accept(), scope=scope, client="d7").enter("/")
    assert identity.may(Action.WRITE, Kind.TOPIC, "sensors/1")
    assert not identity.may(Action.WRITE, Kind.TOPIC, "other/1")
    assert identity.may(Action.READ, Kind.FILTER, "cmd/d7")
    assert not identity.may(Action.READ, Kind.FILTER, "#")
    assert not identity.may_all_topics(Action.WRITE)
    assert not identity.may(Action.READ, Kind.TOPIC, "q")  # that is the name of a queue
    assert login(accept(), scope="rabbitmq.read:*/*/*").enter("/").may_all_topics(Action.READ)


def test_an_exchange_that_becomes_a_topic_exchange_has_its_keys_asked_for_again(accept):
    access = accept()
    topics = set()
    access.exchange_types.is_topic = lambda vhost, name: name in topics
    identity = login(access, scope="rabbitmq.write:*/x/a").enter("/")
    assert identity.may_use_keys(Action.WRITE, "x", "b")
    topics.add("x")
    assert not identity.may_use_keys(Action.WRITE, "x", "b")
    assert identity.may_use_keys(Action.WRITE, "x", "a")


def test_a_claim_in_a_scope_is_a_text_and_no_pattern(accept):
    scope = "rabbitmq.configure:*/{who}-q rabbitmq.configure:*/{nobody}-q"
    identity = login(accept(), scope=scope, who="*/*").enter("/")
    assert identity.may(Action.CONFIGURE, Kind.QUEUE, "*/*-q")
    for name in ("x-q", "nobody-q", "-q"):
        assert not identity.may(Action.CONFIGURE, Kind.QUEUE, name)


def test_where_scopes_are_taken_the_users_file_gives_a_token_nothing(accept, tmp_path):
    known = UserSettings(name="device-7", permissions=(PermissionSettings(read=".*"),))
    save_users(tmp_path / "users.yaml", UsersSettings(users=(known,)))
    assert not login(accept(str(tmp_path / "users.yaml"))).may_enter("/")


def test_a_token_for_somebody_else_is_refused_by_its_audience(accept):
    refused = {"scope": "rabbitmq.read:*/*", "aud": "billing"}
    with pytest.raises(LoginRefused) as error:
        login(accept(), **refused)
    assert "not for rabbitmq" in error.value.reason
    assert login(accept(verify_aud=False), **refused).may_enter("/")
    assert login(accept(audience="billing"), **refused).may_enter("/")


def test_the_audience_says_by_which_resource_server_scopes_are_read(accept):
    aliases = {"ops": "prod.tag:administrator"}
    production = {"id": "prod", "preferred_username_claims": ["login"], "scope_aliases": aliases}
    development = {"id": "dev", "scope_prefix": "d/", "additional_scopes_key": "roles"}
    access = accept(
        resource_servers=[production, development], scope_aliases={"ops": "rabbitmq.tag:monitoring"}
    )
    shown = {"scope": "prod.read:*/p d/read:*/d rabbitmq.read:*/r ops", "roles": ["d/tag:policymaker"]}
    shown["login"] = "ann"
    prod, dev, root = (login(access, **shown, aud=name) for name in ("prod", "dev", "rabbitmq"))
    for found, own in ((prod, "p"), (dev, "d"), (root, "r")):
        may = [name for name in "pdr" if found.enter("/").may(Action.READ, Kind.QUEUE, name)]
        assert may == [own]
    assert [found.user for found in (prod, dev, root)] == ["ann", "device-7", "device-7"]
    assert [found.tags for found in (prod, dev, root)] == [{"administrator"}, {"policymaker"}, {"monitoring"}]
    wrong: object
    for wrong in (["prod", "dev"], ["rabbitmq", "prod"], "prod dev", "else", None, 7, {}):
        with pytest.raises(LoginRefused, match="by its aud"):
            login(access, **shown, aud=wrong)
    asyncio.run(access.take(accept(resource_servers=[development])._accounts))
    with pytest.raises(LoginRefused):
        access.current(prod)
    assert access.current(dev).tags == {"policymaker"}


def test_a_token_with_permissions_of_its_own_is_for_its_audience_too(accept):
    own = {"sluicemq": {"permissions": [{"read": ".*"}]}}
    assert login(accept(), **own).may_enter("/")
    with pytest.raises(LoginRefused, match="by its aud"):
        login(accept(), **own, aud="else")


def test_a_token_with_too_many_scopes_is_refused(accept, monkeypatch):
    monkeypatch.setattr(limits, "TOKEN_SCOPES_MAX", 10)
    with pytest.raises(LoginRefused) as error:
        login(accept(scope_aliases={"all": ["x"] * 9}), scope="all and")
    assert "too many scopes" in error.value.reason


def test_a_reload_gives_scopes_their_new_meaning_and_ends_who_may_do_less(accept):
    access = accept(scope_aliases={"reader": "rabbitmq.read:*/*", "boss": ["rabbitmq.tag:administrator"]})
    token = login(access, scope="reader boss")
    identity = token.enter("/")
    ended: list[str] = []
    access.present.enter(identity, ended.append)
    assert identity.may(Action.READ, Kind.QUEUE, "q")
    same = accept(scope_aliases={"reader": "rabbitmq.read:*/* rabbitmq.write:*/q"})
    assert asyncio.run(access.take(same._accounts)) == 0
    assert identity.may(Action.WRITE, Kind.QUEUE, "q")
    assert not access.current(token).tags
    less = accept(scope_aliases={"reader": "rabbitmq.read:%2F/other"})
    assert asyncio.run(access.take(less._accounts)) == 1
    assert ended
    assert not identity.may(Action.READ, Kind.QUEUE, "q")


def test_the_names_of_virtual_hosts_of_scopes_are_never_any(accept):
    found = login(accept(), scope="rabbitmq.read:%2A/*")
    assert not found.may_enter("/")
    assert found.vhosts == ["*"]
    with pytest.raises(KeyError):
        found._grants["*"]


def test_settings_of_scopes_without_a_resource_server_are_refused():
    for name in ("mq", "x", ""):
        with pytest.raises(ValueError, match="each has an id of its own"):
            TokenSettings(
                keys_file="k", resource_server_id="mq", resource_servers=[{"id": "x"}, {"id": name}]
            )
    for key, value in (("scope_prefix", ""), ("additional_scopes_key", "x"), ("scope_aliases", {"a": "b"})):
        with pytest.raises(ValueError, match=f"{key} says nothing without resource_server_id"):
            TokenSettings(keys_file="k", **{key: value})
    assert TokenSettings(keys_file="k", resource_server_id="mq").prefix == "mq."
    assert TokenSettings(keys_file="k", resource_server_id="mq", scope_prefix="").prefix == ""
