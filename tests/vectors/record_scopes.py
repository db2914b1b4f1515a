"""Record what RabbitMQ allows by scopes: `python -m tests.vectors.record_scopes PORT HTTP_PORT KEY`.

RabbitMQ has the plugin `rabbitmq_auth_backend_oauth2` with resource_server_id `rabbitmq`,
additional_scopes_key `roles extra.deep`, preferred_username_claims `user_name`, the alias `boss` of
`rabbitmq.tag:administrator rabbitmq.read:*/*`, and the public key of KEY (PEM) as `k1`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import jwt
import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker

RECORDED = Path(__file__).parent / "rabbitmq_scopes.json"
VHOSTS = ("other", "team/a", "x*", "dev-eu")
TOPIC_EXCHANGES = ("events", "events.eu")
FORBIDDEN = 403
OWN = "own-queue-of-the-test"


def claims_of(more: dict[str, Any]) -> dict[str, Any]:
    return {"sub": "device-7", "aud": ["rabbitmq"], "exp": int(time.time()) + 600, **more}


class Asked:
    """A RabbitMQ that is asked what a token allows."""

    def __init__(self, port: int, http_port: int, key: bytes) -> None:
        self.port = port
        self.key = key
        bearer = self.token({"scope": "rabbitmq.tag:administrator rabbitmq.configure:*/* rabbitmq.read:*/*"})
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{http_port}/api", trust_env=False)
        headers = {"authorization": f"Bearer {bearer}"}
        for vhost in VHOSTS:
            name = vhost.replace("/", "%2F")
            assert self.http.put(f"/vhosts/{name}", headers=headers).is_success
            for exchange in TOPIC_EXCHANGES:
                body = {"type": "topic"}
                assert self.http.put(f"/exchanges/{name}/{exchange}", headers=headers, json=body).is_success
        for exchange in TOPIC_EXCHANGES:
            body = {"type": "topic"}
            assert self.http.put(f"/exchanges/%2F/{exchange}", headers=headers, json=body).is_success

    def token(self, more: dict[str, Any]) -> str:
        return jwt.encode(claims_of(more), self.key, "RS256", headers={"kid": "k1"})

    def tags(self, more: dict[str, Any]) -> list[str]:
        answer = self.http.get("/whoami", headers={"authorization": f"Bearer {self.token(more)}"})
        return sorted(answer.json()["tags"]) if answer.is_success else []

    def user(self, more: dict[str, Any]) -> str:
        answer = self.http.get("/whoami", headers={"authorization": f"Bearer {self.token(more)}"})
        return str(answer.json().get("name"))

    def allows(self, more: dict[str, Any], what: str, vhost: str, *names: str) -> bool:
        try:
            connection = pika.BlockingConnection(
                pika.ConnectionParameters(
                    "127.0.0.1",
                    self.port,
                    vhost,
                    pika.PlainCredentials("", self.token(more)),
                    blocked_connection_timeout=5,
                )
            )
        except AMQPError:
            return False
        with connection:
            if what == "enter":
                return True
            try:
                self._do(connection.channel(), what, *names)
            except ChannelClosedByBroker as closed:
                return closed.reply_code != FORBIDDEN
            return True

    def _do(self, channel: Any, what: str, name: str, key: str = "") -> None:
        if what == "configure":
            channel.queue_declare(name, exclusive=True)
        elif what == "read":
            channel.basic_get(name)
        elif what == "bind":
            channel.queue_declare(OWN, exclusive=True)
            channel.queue_bind(OWN, name, key)
        else:
            channel.confirm_delivery()
            channel.basic_publish(name, key, b"")


def main(port: str, http_port: str, key_file: str) -> None:
    asked = Asked(int(port), int(http_port), Path(key_file).read_bytes())
    cases = json.loads(RECORDED.read_text())
    for case in cases:
        claims = case["claims"]
        if "tags" in case:
            case["tags"], case["user"] = asked.tags(claims), asked.user(claims)
        for one in case.get("asked", ()):
            one[0] = asked.allows(claims, *one[1:])
    lines = [json.dumps(case) for case in cases]
    RECORDED.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
