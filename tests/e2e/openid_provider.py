"""An OpenID provider for tests, made of authlib's: it wants PKCE, a client with a secret and a redirect URI
that it knows, and gives access tokens that are JSON web tokens.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

import flask
import jwt
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import AuthorizationCodeMixin, ClientMixin
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant, RefreshTokenGrant
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import OpenIDCode, UserInfo
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc.jwk import RSAKey
from werkzeug.serving import make_server

CLIENT: Final = "page of the broker"
SECRET: Final = "s:ecret&of the page"


class Client(ClientMixin):
    def __init__(self, redirect_uris: list[str]) -> None:
        self.redirect_uris = redirect_uris

    def get_client_id(self) -> str:
        return CLIENT

    def get_default_redirect_uri(self) -> None:
        return None

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri in self.redirect_uris

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in ("authorization_code", "refresh_token")


@dataclass
class User:
    sub: str

    def get_user_id(self) -> str:
        return self.sub


@dataclass
class Code(AuthorizationCodeMixin):
    sub: str
    redirect_uri: str
    scope: str
    nonce: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> int:
        return int(time.time())

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


@dataclass
class RefreshToken:
    sub: str
    scope: str

    def check_client(self, client: Client) -> bool:
        return True

    def get_scope(self) -> str:
        return self.scope


@dataclass
class Provider:
    """`users` are claims of access tokens by `sub`; `seconds` how long these last, `ahead_s` how far a clock
    of who reads them is put forward; `id_claims` and `access_claims` change what tokens say, and
    `renewed_id_claims`, unless None, those given for refresh tokens; `ended` are sessions that it ended.
    """

    users: dict[str, dict[str, Any]]
    redirect_uris: list[str] = field(default_factory=list)
    seconds: int = 600
    ahead_s: float = 0
    id_claims: dict[str, Any] = field(default_factory=dict)
    access_claims: dict[str, Any] = field(default_factory=dict)
    ended: list[dict[str, str]] = field(default_factory=list)
    codes: dict[str, Code] = field(default_factory=dict)
    refresh_tokens: dict[str, RefreshToken] = field(default_factory=dict)
    refreshes: bool = False
    renewed_id_claims: dict[str, Any] | None = None
    refreshed_count: int = 0

    def __post_init__(self) -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        self.jwk = RSAKey.import_key(self.key, {"kid": "one", "use": "sig", "alg": "RS256"})
        self.app = _app(self)
        self._server = make_server("127.0.0.1", 0, self.app, threaded=True)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def signed(self, claims: dict[str, Any]) -> str:
        now = int(time.time() + self.ahead_s)
        claims = {"iss": self.issuer, "exp": now + self.seconds, **claims}
        return jwt.encode(claims, self.key, "RS256", headers={"kid": "one"})


def _app(provider: Provider) -> flask.Flask:
    os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
    app = flask.Flask("openid_provider")
    app.config["OAUTH2_ACCESS_TOKEN_GENERATOR"] = lambda client, grant_type, user, scope: provider.signed(
        {"sub": user.sub, **provider.users[user.sub], **provider.access_claims}
    )
    app.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = lambda **about: (
        secrets.token_urlsafe(32) if provider.refreshes else None
    )
    server = AuthorizationServer(
        app,
        query_client=lambda client_id: Client(provider.redirect_uris) if client_id == CLIENT else None,
        save_token=lambda token, request: _keep(provider, token, request.user),
    )
    server.register_grant(_grant(provider), [_IdTokens(provider), CodeChallenge(required=True)])

    server.register_grant(_refresh_grant(provider))

    @app.get("/.well-known/openid-configuration")
    def configuration() -> Any:
        paths = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
        paths["end_session_endpoint"] = "/end"
        return {"issuer": provider.issuer, **{name: provider.issuer + path for name, path in paths.items()}}

    @app.get("/keys")
    def keys() -> Any:
        return {"keys": [provider.jwk.as_dict(private=False)]}

    @app.route("/authorize", methods=["GET", "POST"])
    def authorize() -> Any:
        if flask.request.method == "GET":
            server.get_consent_grant(end_user=None)
            buttons = "".join(f"<button name=sub value={sub}>{sub}</button>" for sub in provider.users)
            return f"<title>Provider</title><form method=post>{buttons}</form>"
        sub = flask.request.form["sub"]
        return server.create_authorization_response(grant_user=User(sub) if sub in provider.users else None)

    @app.post("/token")
    def token() -> Any:
        return server.create_token_response()

    @app.get("/end")
    def end() -> Any:
        provider.ended.append(dict(flask.request.args))
        return flask.redirect(flask.request.args["post_logout_redirect_uri"])

    return app


def _grant(provider: Provider) -> type[AuthorizationCodeGrant]:
    class Grant(AuthorizationCodeGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic"]

        def save_authorization_code(self, code: str, request: Any) -> None:
            asked = request.payload.data
            provider.codes[code] = Code(
                request.user.sub,
                asked["redirect_uri"],
                asked["scope"],
                asked["nonce"],
                asked["code_challenge"],
                asked["code_challenge_method"],
            )

        def query_authorization_code(self, code: str, client: Client) -> Code | None:
            return provider.codes.get(code)

        def delete_authorization_code(self, authorization_code: Code) -> None:
            provider.codes = {k: v for k, v in provider.codes.items() if v is not authorization_code}

        def authenticate_user(self, authorization_code: Code) -> User:
            return User(authorization_code.sub)

    return Grant


def _keep(provider: Provider, token: dict[str, Any], user: User) -> None:
    if token.get("refresh_token"):
        provider.refresh_tokens[token["refresh_token"]] = RefreshToken(user.sub, token["scope"])


def _refresh_grant(provider: Provider) -> type[RefreshTokenGrant]:
    class Grant(RefreshTokenGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic"]
        INCLUDE_NEW_REFRESH_TOKEN = True

        def authenticate_refresh_token(self, refresh_token: str) -> RefreshToken | None:
            provider.refreshed_count += 1
            return provider.refresh_tokens.pop(refresh_token, None)  # good for once

        def authenticate_user(self, refresh_token: RefreshToken) -> User:
            return User(refresh_token.sub)

        def issue_token(self, user: User, credential: RefreshToken) -> dict[str, Any]:
            token = super().issue_token(user, credential)
            if provider.renewed_id_claims is not None:
                claims = {"aud": CLIENT, "sub": user.sub, **provider.renewed_id_claims}
                token["id_token"] = provider.signed(claims)
            return token

        def revoke_old_credential(self, refresh_token: RefreshToken) -> None:
            pass

    return Grant


class _IdTokens(OpenIDCode):
    def __init__(self, provider: Provider) -> None:
        super().__init__(require_nonce=True)
        self.provider = provider

    def exists_nonce(self, nonce: str, request: Any) -> bool:
        return False

    def resolve_client_private_key(self, client: Client) -> Any:
        return self.provider.jwk

    def get_client_claims(self, client: Client) -> dict[str, Any]:
        now = int(time.time() + self.provider.ahead_s)
        return {"iss": self.provider.issuer, "aud": [CLIENT], "exp": now + 60}

    def generate_user_info(self, user: User, scope: str) -> UserInfo:
        return UserInfo(sub=user.sub, **self.provider.id_claims)
