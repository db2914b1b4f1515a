"""broker.access.scram: RFC 7677's example, and what proves nothing."""

import asyncio
import base64
import hashlib
import hmac
import secrets

import pytest

from broker.access import scram
from broker.access.access import Access
from broker.access.credentials import LoginRefused, Peer
from broker.access.scram import Decoys, ScramExchange, Verifier, make_verifier, read_verifier
from broker.clock import Clock
from config import limits
from config.access_settings import AccessSettings, UserSettings, UsersSettings
from config.users_file import save_users

PASSWORD = b"pencil"


def verifier(password, salt, iterations):
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    server = hmac.digest(salted, b"Server Key", "sha256")
    return Verifier(iterations, salt, hashlib.sha256(client).digest(), server)


def prove(challenge, bare, password):
    """What a client answers to the server's first message."""
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salt = base64.b64decode(fields["s"])
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    unproven = f"c=biws,r={fields['r']}"
    message = f"{bare},{challenge.decode()},{unproven}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    return f"{unproven},p={base64.b64encode(proof).decode()}".encode()


def test_the_example_of_rfc_7677(monkeypatch):
    monkeypatch.setattr(secrets, "token_urlsafe", lambda size: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    kept = verifier(PASSWORD, base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    exchange = ScramExchange(lambda user: kept)
    first = exchange.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert first.decode() == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    last = exchange.step(f"c=biws,r={nonce},p={proof}".encode())
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert (exchange.is_done, exchange.user) == (True, "user")


def test_a_verifier_proves_its_password_and_no_other():
    text = make_verifier(PASSWORD)
    assert "pencil" not in text
    for password, is_right in ((PASSWORD, True), (b"pencil2", False)):
        exchange = ScramExchange(lambda user: read_verifier(text))
        challenge = exchange.step(b"n,,n=a=2Cb=3Dc,r=abc")
        answer = prove(challenge, "n=a=2Cb=3Dc,r=abc", password)
        if is_right:
            assert exchange.step(answer).startswith(b"v=")
            assert exchange.user == "a,b=c"
        else:
            with pytest.raises(LoginRefused):
                exchange.step(answer)
            assert not exchange.is_done


def test_unknown_users_look_as_known_ones_do():
    decoys = Decoys()
    assert decoys.verifier("x").salt == decoys.verifier("x").salt != decoys.verifier("y").salt
    exchange = ScramExchange(decoys.verifier)
    challenge = exchange.step(b"n,,n=x,r=abc")
    with pytest.raises(LoginRefused) as refused:
        exchange.step(prove(challenge, "n=x,r=abc", PASSWORD))
    assert refused.value.told == LoginRefused.TOLD


@pytest.mark.parametrize(
    "first",
    [
        b"n,,n=" + b"x" * 256 + b",r=a",
        b"n,,n=x,r=" + b"a" * 64_000,
        b"",
        b"n,,",
        b"n,,n=x",
        b"n,,n=x,r=",
        b"p=tls-unique,,n=x,r=a",
        b"n,a=y,n=x,r=a",
        b"\xff",
        b"n,,r=a",
    ],
)
def test_malformed_first_messages_are_refused(first):
    with pytest.raises(LoginRefused):
        ScramExchange(Decoys().verifier).step(first)


@pytest.mark.parametrize("change", ["nonce", "binding", "proof", "short", "none", "again"])
def test_final_messages_that_do_not_fit_are_refused(change):
    kept = verifier(PASSWORD, b"salt" * 4, 4096)
    exchange = ScramExchange(lambda user: kept)
    right = prove(exchange.step(b"n,,n=x,r=abc"), "n=x,r=abc", PASSWORD)
    wrong = {
        "nonce": right.replace(b"r=abc", b"r=abd"),
        "binding": right.replace(b"c=biws", b"c=cD10bHM="),
        "proof": right[:-6] + b"AAAAA=",
        "short": right.rpartition(b"p=")[0] + b"p=AAAA",
        "none": right.rpartition(b",p=")[0],
        "again": b"n,,n=x,r=abc",
    }[change]
    with pytest.raises(LoginRefused):
        exchange.step(wrong)
    assert not exchange.is_done


@pytest.fixture
def access(tmp_path):
    users = UserSettings(name="dev", scram=make_verifier(PASSWORD))
    save_users(tmp_path / "users.yaml", UsersSettings(users=(users,)))
    return Access(AccessSettings(users_file=str(tmp_path / "users.yaml"), anonymous="never"), Clock())


async def try_scram(access, host, password=PASSWORD, user="dev"):
    exchange = access.begin_scram()
    bare = f"n={user},r=abc"
    challenge = exchange.step(b"n,," + bare.encode())
    return await access.finish_scram(exchange, prove(challenge, bare, password), Peer(host))


async def failures(access, host, count, **options):
    found = await asyncio.gather(
        *[try_scram(access, host, b"wrong", **options) for _ in range(count)], return_exceptions=True
    )
    assert all(isinstance(each, LoginRefused) for each in found)


async def test_strangers_who_fail_do_not_lock_a_user_out(access, monkeypatch):
    monkeypatch.setattr(limits, "LOGIN_WAIT_S_MAX", 0.4)
    for number in range(12):
        await failures(access, f"10.0.1.{number}", 10)
    for number in range(5):
        login, _ = await try_scram(access, f"10.0.2.{number}")
        assert login.user == "dev"


async def test_a_proof_is_looked_at_in_its_turn_where_others_failed(access, monkeypatch):
    """As a password is, and not refused at once."""
    monkeypatch.setattr(limits, "LOGIN_DELAY_S_MIN", 0.01)
    await failures(access, "10.0.0.1", limits.LOGIN_FAILURES_FREE + 1, user="other")
    found = await asyncio.gather(*[try_scram(access, "10.0.0.1") for _ in range(3)])
    assert [login.user for login, _ in found] == ["dev"] * 3


async def test_guesses_beside_each_other_are_slowed(access, monkeypatch):
    monkeypatch.setattr(limits, "LOGIN_WAIT_S_MAX", 0.4)
    await failures(access, "10.0.0.1", 50)
    with pytest.raises(LoginRefused, match="too many failed"):
        await try_scram(access, "10.0.0.1")


async def test_a_password_that_was_changed_since_the_challenge_lets_nobody_in(access, tmp_path):
    exchange = access.begin_scram()
    challenge = exchange.step(b"n,,n=dev,r=abc")
    users = UserSettings(name="dev", scram=make_verifier(b"another"))
    save_users(tmp_path / "users.yaml", UsersSettings(users=(users,)))
    settings = AccessSettings(users_file=str(tmp_path / "users.yaml"), anonymous="never")
    await access.take(access.prepare(settings))
    with pytest.raises(LoginRefused):
        await access.finish_scram(exchange, prove(challenge, "n=dev,r=abc", PASSWORD), Peer("10.0.0.1"))


def test_what_is_no_verifier_is_not_read():
    for text in ("", "x", "SCRAM-SHA-1$1:a$b:c", "SCRAM-SHA-256$0:YWJj$YWJj:YWJj", f"{scram.METHOD}$1$2"):
        with pytest.raises(ValueError):
            read_verifier(text)
