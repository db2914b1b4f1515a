"""Everything that a broker prints and answers is searched for every secret in use."""

import base64
import json
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import jwt
import pytest
import yaml

from broker.access.passwords import hashed
from broker.access.scram import make_verifier
from broker.network.tls.making import Authority, write_pair
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users
from tests.e2e import amqp
from tests.e2e.broker_process import WORKING_DIRECTORY, BrokerFailed, BrokerProcess, command_line
from tests.e2e.mqtt import MqttClient, MqttRefused
from tests.waiting import until

RIGHT = "Right-pw-of-boss-8d1f"
HOOK_RIGHT = "Right-pw-at-hook-77aa"
WRONG = "Mistyped-pw-3c9e"
STRANGER = "Typed-by-stranger-51b2"
SIGNING = "Signing-secret-0123456789abcdef-4e"
SHOWN_TO_HOOK = "Token-for-hook-b0c4"
BRIDGE = "Bridge-pw-19fe"
STORE_KEY = "Store-secret-key-66d0"
STORE_SESSION = "Store-session-token-2f2f"
IN_BROKEN_FILE = "Secret-in-broken-file-a1"
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}

BRIDGE_LINE = "mqtt: {bridges: [{name: b, address: 'h:1', in: [{topic: x}], %s}]}"
BROKEN = [
    BRIDGE_LINE % "passwort: %s",
    BRIDGE_LINE % "password: [%s]",
    BRIDGE_LINE % "password: {%s: x}",
    BRIDGE_LINE % "password:%s",
    BRIDGE_LINE % "password: !%s",
    BRIDGE_LINE % "password: !%s x",
    BRIDGE_LINE % "password: *%s",
    BRIDGE_LINE % "password: &%s",
    BRIDGE_LINE % "password: !%s!x",
    BRIDGE_LINE % "password: '%s",
    BRIDGE_LINE % "password: %s, password: %s",
    BRIDGE_LINE % "password: %s, tls: %s",
    "mqtt: {bridges: [{name: b, address: 'user:%s@h', in: [{topic: x}]}]}",
    "storage: {url: 's3://key:%s@bucket/prefix'}",
    "storage: {url: 's3:///bucket?secret=%s'}",
    "storage: {url: 'https://key:%s@host/'}",
    "access: {http: {url: 'https://user:%s@h/'}}",
    "access: {http: {url: 'https://%s@h/'}}",
    "access: {jwt: {jwks_url: 'https://user:%s@h/'}}",
    "access: {jwt: {secret: %s}}",
]
"""Files that cannot be used, each with a secret where %s is."""


class Hook(BaseHTTPRequestHandler):
    """The service that is asked by HTTP: knows one user, fails for another."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        known = asked["password"] == HOOK_RIGHT and self.headers["authorization"] == f"Bearer {SHOWN_TO_HOOK}"
        answer = json.dumps(
            {"allow": True, "user": asked["user"], "permissions": [EVERYTHING]} if known else {"allow": False}
        )
        self.send_response(500 if asked["user"] == "failing" else 200)
        self.end_headers()
        # what it echoes when it fails is not to be logged either
        self.wfile.write(answer.encode() if asked["user"] != "failing" else asked["password"].encode())

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture(scope="module")
def hook_url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/ask"
    server.shutdown()
    server.server_close()


class Guarded:
    """A broker whose configuration is full of secrets, and what it said to those who asked."""

    def __init__(self, directory, hook_url):
        self.answers = []
        self.kept = {"password": hashed(RIGHT.encode()), "scram": make_verifier(RIGHT.encode())}
        boss = UserSettings(
            name="boss",
            **self.kept,
            tags=("administrator",),
            permissions=(PermissionSettings(**EVERYTHING),),
        )
        save_users(directory / "users.yaml", UsersSettings(users=(boss,)))
        for name, secret in (("signing", SIGNING), ("hook-token", SHOWN_TO_HOOK)):
            (directory / name).write_text(secret)
        authority = Authority.made()
        write_pair(directory, "server", *authority.issue("localhost", ["localhost"], is_server=True))
        self.tls_key_lines = (directory / "server.key").read_text().splitlines()[1:-1]
        self.tokens = []
        config = {
            "access": {
                "users_file": str(directory / "users.yaml"),
                "anonymous": "never",
                "jwt": {
                    "secret_file": str(directory / "signing"),
                    "algorithms": ["HS256"],
                    "audience": "here",
                },
                "http": {"url": hook_url, "token_file": str(directory / "hook-token"), "cache": "1s"},
            },
            "listeners": {
                "amqps": {
                    "port": 0,
                    "tls": {"cert": str(directory / "server.crt"), "key": str(directory / "server.key")},
                }
            },
            "log": {"level": "debug"},
            "mqtt": {
                "bridges": [
                    {
                        "name": "far",
                        "address": "127.0.0.1:1",
                        "username": "broker",
                        "password": BRIDGE,
                        "in": [{"topic": "x"}],
                    }
                ]
            },
        }
        environment = {
            "AWS_SECRET_ACCESS_KEY": STORE_KEY,
            "AWS_SESSION_TOKEN": STORE_SESSION,
            "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        }
        self.process = BrokerProcess(directory, config, environment=environment).start()

    def token(self, user="device", **claims):
        claims = {"sub": user, "exp": time.time() + 60, "aud": "here", **claims}
        made = jwt.encode({**claims, "sluicemq": {"permissions": [EVERYTHING]}}, SIGNING, "HS256")
        self.tokens.append(made)
        return made

    def secrets(self):
        """Every secret there is, and every one that was tried."""
        return [
            *(RIGHT, HOOK_RIGHT, WRONG, STRANGER, SIGNING, SHOWN_TO_HOOK, BRIDGE, STORE_KEY, STORE_SESSION),
            base64.b64encode(f"boss:{RIGHT}".encode()).decode(),  # as HTTP has it
            base64.b64encode(f"nobody:{STRANGER}".encode()).decode(),
            *self.kept.values(),
            *(token.rpartition(".")[2] for token in self.tokens),
            *self.tls_key_lines,
        ]

    def leaked(self):
        said = "\n".join([self.process.log, *self.answers])
        return [secret for secret in self.secrets() if secret in said]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, hook_url):
    guarded = Guarded(tmp_path_factory.mktemp("secrets"), hook_url)
    yield guarded
    guarded.process.kill9()


def log_in_everywhere(guarded, user, password):
    """How many of AMQP, MQTT 5, MQTT 3.1.1 and HTTP let that user in; what they answered is kept."""
    process, count = guarded.process, 0
    try:
        amqp.connect(process.amqp_port, user=user, password=password).close()
        count += 1
    except amqp.AMQPError as error:
        guarded.answers.append(repr(error))
    for version in (4, 5):
        client = MqttClient(process.mqtt_port, username=user, password=password, version=version)
        try:
            client.connect().end()
            count += 1
        except MqttRefused as error:
            guarded.answers.append(str(error))
    with httpx.Client(base_url=process.http_url, auth=(user, password)) as http:
        answer = http.get("/api/v1/overview")
        guarded.answers += [answer.text, str(answer.headers)]
        return count + (answer.status_code in (200, 403))  # 403: known, and no administrator


def run(*arguments, text="", **environment):
    done = subprocess.run(
        command_line(*arguments),
        cwd=WORKING_DIRECTORY,
        env={**os.environ, "COLUMNS": "500", **environment},
        input=text,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_no_login_leaves_a_secret_in_the_log_or_an_answer(guarded):
    assert log_in_everywhere(guarded, "boss", RIGHT) == 4
    assert log_in_everywhere(guarded, "hooked", HOOK_RIGHT) == 4
    assert log_in_everywhere(guarded, "device", guarded.token()) == 4
    assert log_in_everywhere(guarded, "nobody", STRANGER) == 0
    for password in (WRONG, guarded.token(exp=1), guarded.token(aud="elsewhere")):
        # one way each, since guesses wait for ever longer
        with pytest.raises(amqp.AMQPError):
            amqp.connect(guarded.process.amqp_port, user="boss", password=password)
    with pytest.raises(MqttRefused):
        MqttClient(guarded.process.mqtt_port, username="failing", password=WRONG).connect()
    bearer = {"authorization": f"Bearer {guarded.token(exp=1)}"}
    guarded.answers.append(
        httpx.get(f"{guarded.process.http_url}/api/v1/overview", headers=bearer, timeout=20).text
    )
    assert "login_refused" in guarded.process.log  # the searched log has what could leak
    assert guarded.leaked() == []


def test_nothing_that_is_shown_has_a_secret(guarded):
    url = guarded.process.http_url
    with httpx.Client(base_url=url, auth=("boss", RIGHT)) as client:
        paths = client.get("/api/v1/openapi.json").json()["paths"]
        asked = [f"{path}" for path, calls in paths.items() if "get" in calls and "{" not in path]
        asked += ["/", "/metrics", "/api/users", "/api/overview", "/api/connections"]
        for path in asked:
            with suppress(httpx.ReadTimeout), client.stream("GET", path, timeout=0.5) as answer:
                guarded.answers += [path, str(answer.headers)]
                guarded.answers.extend(answer.iter_text())
        for text in BROKEN:
            text = text.replace("%s", WRONG)
            answer = client.post("/api/v1/configuration/check", json={"text": text})
            assert answer.json()["problems"], text
            guarded.answers.append(answer.text)
    status, printed = run(
        "config", "show", "--url", url, "--user", "boss", "--password-stdin", text=RIGHT + "\n"
    )
    assert status == 0, printed
    assert "***" in printed  # the bridge's password
    guarded.answers.append(printed)
    assert guarded.leaked() == []


def test_reloading_and_failing_to_reload_tell_no_secret(guarded):
    process = guarded.process
    good = process.config_file.read_text()
    process.config["mqtt"]["bridges"][0]["password"] = WRONG  # a changed secret is told by its key
    texts = [("config.reloaded", yaml.safe_dump(process.config))]
    texts += [("config.not_reloaded", broken.replace("%s", WRONG)) for broken in (BROKEN[3], BROKEN[6])]
    for told, text in [*texts, ("config.reloaded", good)]:
        before = process.log.count(told)
        process.config_file.write_text(text)
        os.kill(process.pid, signal.SIGHUP)
        until(lambda told=told, before=before: process.log.count(told) > before, told=lambda text=text: text)  # type: ignore[misc]
        assert process.log.count(told) == before + 1, text
    assert guarded.leaked() == []
    assert process.stop() == 0
    assert guarded.leaked() == []


def test_a_broken_file_is_told_without_the_secrets_in_it(tmp_path):
    file = tmp_path / "broken.yaml"
    file.write_text(BROKEN[0].replace("%s", IN_BROKEN_FILE))
    status, printed = run("config", "check", str(file), SLUICEMQ_MQTT__BRIDGES=f"[{{password: {WRONG}}}]")
    assert status != 0
    assert IN_BROKEN_FILE not in printed
    assert WRONG not in printed


def test_a_start_that_fails_tells_no_secret(tmp_path):
    storage = f"s3://key:{WRONG}@bucket/prefix"
    process = BrokerProcess(tmp_path, storage=storage, environment={"AWS_SECRET_ACCESS_KEY": STORE_KEY})
    with pytest.raises(BrokerFailed):
        process.start()
    assert "storage.url: must not have credentials in it" in process.log
    assert WRONG not in process.log
    assert STORE_KEY not in process.log
