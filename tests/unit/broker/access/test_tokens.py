"""broker.access.tokens: what a token has to be."""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from broker.access.access import Access
from broker.access.credentials import LoginRefused, Password, Peer
from broker.access.rights import Action, Kind
from broker.clock import Clock
from config import limits
from config.access_settings import (
    AccessSettings,
    PermissionSettings,
    UserSettings,
    UsersSettings,
)
from config.token_settings import TokenSettings
from config.users_file import save_users

PEER = Peer("10.0.0.1")
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
SECRET = b"0123456789abcdef0123456789abcdef"
MAY = {"permissions": [{"vhost": "/", "read": "^orders$"}], "tags": ["monitoring", "root"]}


def pem(key):
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


@pytest.fixture
def accept(tmp_path, monkeypatch):
    """Makes an `Access` that takes tokens signed by RSA, EC and ED, or as the settings say."""

    monkeypatch.setattr(limits, "LOGIN_FAILURES_FREE", 1_000)  # no refused token makes the next one wait

    def make(users_file="", **settings):
        (tmp_path / "keys.pem").write_bytes(pem(RSA) + pem(EC) + pem(ED))
        settings.setdefault("keys_file", str(tmp_path / "keys.pem"))
        return Access(AccessSettings(jwt=TokenSettings(**settings), users_file=users_file), Clock())

    return make


def token(key=RSA, algorithm="RS256", headers=None, **claims):
    claims = {"sub": "device-7", "exp": int(time.time()) + 60, "sluicemq": MAY, **claims}
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers=headers)


def login(access, text, user="whoever"):
    return asyncio.run(access.login(Password(user, text.encode() if isinstance(text, str) else text), PEER))


def refused(access, text):
    with pytest.raises(LoginRefused) as error:
        login(access, text)
    assert error.value.told == LoginRefused.TOLD
    return error.value.reason


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (EC, "ES256"), (ED, "EdDSA")])
def test_a_token_says_who_somebody_is_and_what_they_may_do(accept, key, algorithm):
    found = login(accept(), token(key, algorithm))
    assert (found.user, found.tags) == ("device-7", {"monitoring"})
    identity = found.enter("/")
    assert identity.may(Action.READ, Kind.QUEUE, "orders")
    assert not identity.may(Action.WRITE, Kind.QUEUE, "orders")
    assert not found.may_enter("other")
    assert abs(found.expires_at_ms / 1000 - time.time() - 70) < 5


def test_a_shared_secret_signs_hs_tokens(accept, tmp_path):
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    access = accept(keys_file="", secret_file=str(tmp_path / "secret"), algorithms=("HS256",))
    assert login(access, token(SECRET, "HS256")).user == "device-7"
    assert refused(access, token(b"another secret, also 32 bytes ok", "HS256"))


def test_tokens_that_prove_nothing_are_refused(accept):
    access = accept(issuer="https://sso.example", audience="sluicemq")
    right = {"iss": "https://sso.example", "aud": ["other", "sluicemq"]}
    assert login(access, token(**right)).user == "device-7"
    other = rsa.generate_private_key(65537, 2048)
    now = int(time.time())
    assert "unknown key" in refused(access, token(other, **right))
    assert "expired" in refused(access, token(**right, exp=now - 60))
    assert "exp" in refused(access, token(**right, exp=None))
    assert "yet valid" in refused(access, token(**right, nbf=now + 600))
    assert "issuer" in refused(access, token(**{**right, "iss": "https://evil.example"}))
    assert "iss" in refused(access, token(aud="sluicemq"))
    assert "Audience" in refused(access, token(**{**right, "aud": "other"}))
    assert "sub" in refused(access, token(**right, sub=None))
    assert "permissions" in refused(access, token(**right, sluicemq={"permissions": "all"}))
    assert "permissions" in refused(access, token(**right, sluicemq={"permissions": [{"read": "("}]}))
    assert refused(access, token(**right)[:-3] + "AAA")
    for wrong in ("eyJ..", "eyJhbGciOiJSUzI1NiJ9.e30.", "e.y.J"):
        assert refused(access, wrong)


def test_a_token_is_no_longer_than_a_password_may_be(accept):
    access = accept()
    assert login(access, token(more="x" * 10_000))
    assert refused(access, token(more="x" * limits.PASSWORD_BYTES_MAX))


def unsigned(header, claims, sign=lambda text: b""):
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    text = b".".join(parts)
    return text + b"." + base64.urlsafe_b64encode(sign(text)).rstrip(b"=")


INFINITE = float("inf")


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": str(int(time.time()) + 600)},
        {"exp": INFINITE},
        {"exp": float("nan")},
        {"exp": True},
        {"exp": [1]},
        {"exp": {}},
        {"exp": 1e300},
        {"exp": "4102444800"},
        {"exp": "soon"},
        {"nbf": INFINITE},
        {"nbf": []},
        {"iat": INFINITE},
        {"iat": {}},
        {"sub": 7},
        {"sub": "a\nb"},
        {"sub": "\ud800"},
        {"sub": "\u6f22" * 100},
        {"sub": "x" * 256},
    ],
)
def test_claims_that_cannot_be_meant_are_refused(accept, claims):
    assert refused(accept(), signed(RSA, claims))


def signed(key, claims):
    """A token that is signed, whatever its claims are."""
    claims = {"sub": "device-7", "exp": int(time.time()) + 60, "sluicemq": MAY, **claims}
    return jwt.api_jws.encode(json.dumps(claims).encode(), key, "RS256")


def test_the_none_algorithm_and_confused_keys_are_refused(accept, tmp_path):
    claims = {"sub": "device-7", "exp": int(time.time()) + 60, "sluicemq": MAY}
    (tmp_path / "secret").write_bytes(SECRET)
    every = ("RS256", "ES256", "EdDSA", "HS256")
    access = accept(secret_file=str(tmp_path / "secret"), algorithms=every)
    for name in ("none", "None", "NONE", "", None, "HS1"):
        assert "is not taken" in refused(access, unsigned({"alg": name, "typ": "JWT"}, claims))
    for public in (pem(RSA), pem(EC), pem(RSA).strip()):  # a public key is no secret

        def sign(text, public=public):
            return hmac.digest(public, text, hashlib.sha256)

        assert "unknown key" in refused(access, unsigned({"alg": "HS256"}, claims, sign))
    signed = token(EC, "ES256").split(".")
    signed[0] = jwt.encode({}, RSA, "RS256").split(".")[0]  # another algorithm in the header
    assert refused(access, ".".join(signed))


def test_a_token_without_permissions_has_those_of_its_user(accept, tmp_path):
    known = UserSettings(name="device-7", permissions=(PermissionSettings(read="^mine$"),))
    save_users(tmp_path / "users.yaml", UsersSettings(users=(known,)))
    access = accept(str(tmp_path / "users.yaml"))
    found = login(access, token(sluicemq=None))
    assert found.enter("/").may(Action.READ, Kind.QUEUE, "mine")
    assert found.expires_at_ms
    assert "not known" in refused(access, token(sluicemq=None, sub="stranger"))


class KeySets(BaseHTTPRequestHandler):
    """Serves `keys`, a list of (private key, kid); counts requests."""

    keys: list = []
    count = 0
    is_broken = False
    told: dict = {}

    def do_GET(self):
        if self.path.startswith("/realm/.well-known/"):
            self.answer(json.dumps(self.told))
            return
        type(self).count += 1
        if self.is_broken:
            self.send_error(500)
            return
        entries = []
        for key, name in self.keys:
            entry = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
            entries.append({**entry, "kid": name, "use": "sig"})
        body = json.dumps({"keys": [*entries, {"kty": "oct", "k": "c2VjcmV0", "kid": "s"}, {"kty": "?"}]})
        self.answer(body)

    def answer(self, body):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments):
        pass


@pytest.fixture
def key_sets(monkeypatch):
    """The address of a server of `KeySets`, which is asked for keys as often as anybody wants."""
    monkeypatch.setattr(limits, "TOKEN_KEYS_ASK_INTERVAL_S", 0)
    KeySets.keys, KeySets.count, KeySets.is_broken = [(RSA, "one")], 0, False
    server = ThreadingHTTPServer(("127.0.0.1", 0), KeySets)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_key_set_is_asked_for_again_when_keys_are_changed(accept, key_sets):
    access = accept(keys_file="", jwks_url=f"{key_sets}/keys")
    other = rsa.generate_private_key(65537, 2048)
    assert login(access, token(headers={"kid": "one"})).user == "device-7"
    assert login(access, token(headers={"kid": "one"})).user == "device-7"
    assert KeySets.count == 1
    KeySets.keys = [(other, "two")]
    assert login(access, token(other, headers={"kid": "two"})).user == "device-7"
    assert KeySets.count == 2
    assert "unknown key" in refused(access, token(headers={"kid": "one"}))  # taken away
    KeySets.is_broken = True
    assert "unknown key" in refused(access, token(headers={"kid": "three"}))
    assert login(access, token(other, headers={"kid": "two"})).user == "device-7"


def test_tokens_of_unknown_keys_do_not_flood_whoever_has_the_keys(accept, key_sets, monkeypatch):
    monkeypatch.setattr(limits, "TOKEN_KEYS_ASK_INTERVAL_S", 60)
    access = accept(keys_file="", jwks_url=f"{key_sets}/keys")
    other = rsa.generate_private_key(65537, 2048)

    async def flood():
        shown = [token(other, headers={"kid": f"k{number}"}).encode() for number in range(50)]
        logins = [access.login(Password("x", text), PEER) for text in shown]
        return await asyncio.gather(*logins, return_exceptions=True)

    assert all(isinstance(found, LoginRefused) for found in asyncio.run(flood()))
    assert KeySets.count == 1
    assert login(access, token(headers={"kid": "one"})).user == "device-7"


def test_an_issuer_tells_where_its_keys_are(accept, key_sets):
    issuer = f"{key_sets}/realm"
    KeySets.told = {"issuer": issuer, "jwks_uri": f"{key_sets}/keys"}
    access = accept(keys_file="", issuer=issuer)
    assert login(access, token(iss=issuer, headers={"kid": "one"})).user == "device-7"
    assert "issuer" in refused(access, token(iss=f"{key_sets}/other"))


@pytest.mark.parametrize(
    "told",
    [
        {"issuer": "https://evil.example", "jwks_uri": "http://127.0.0.1:1/"},
        {"jwks_uri": "http://127.0.0.1:1/"},
        {"issuer": "{issuer}"},
        {"issuer": "{issuer}", "jwks_uri": "http://evil.example/keys"},
        {"issuer": "{issuer}", "jwks_uri": ["{issuer}"]},
        [],
    ],
)
def test_an_issuer_that_tells_no_such_thing_lets_nobody_in(accept, key_sets, told):
    issuer = f"{key_sets}/realm"
    KeySets.told = json.loads(json.dumps(told).replace("{issuer}", issuer))
    assert "unknown key" in refused(accept(keys_file="", issuer=issuer), token(iss=issuer))
    assert KeySets.count == 0


def test_settings_that_would_send_secrets_in_the_clear_are_refused():
    for url in ("http://sso.example/keys", "ftp://x", "https://u:p@sso.example/"):
        with pytest.raises(ValueError, match="must"):
            TokenSettings(jwks_url=url)
        with pytest.raises(ValueError, match="must"):
            TokenSettings(issuer=url)
    with pytest.raises(ValueError, match="need keys_file"):
        TokenSettings()
