"""broker.access.scram: RFC 7677's example, and what proves nothing."""

import base64
import hashlib
import hmac
import secrets

import pytest

from broker.access import scram
from broker.access.credentials import LoginRefused
from broker.access.scram import Decoys, ScramExchange, Verifier, make_verifier, read_verifier

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
    [b"", b"n,,", b"n,,n=x", b"n,,n=x,r=", b"p=tls-unique,,n=x,r=a", b"n,a=y,n=x,r=a", b"\xff", b"n,,r=a"],
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


def test_what_is_no_verifier_is_not_read():
    for text in ("", "x", "SCRAM-SHA-1$1:a$b:c", "SCRAM-SHA-256$0:YWJj$YWJj:YWJj", f"{scram.METHOD}$1$2"):
        with pytest.raises(ValueError):
            read_verifier(text)
