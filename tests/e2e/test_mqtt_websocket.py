"""MQTT over WebSocket: handshake, frames, close codes, and clients of others. Section 6."""

import os
import shutil
import socket
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    TextMessage,
)

from tests.e2e import raw_mqtt as wire
from tests.e2e.mqtt import WAIT_S
from tests.e2e.websocket import WebSocket

PAGES = "https://pages.example.org"


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    from tests.e2e.broker_process import BrokerProcess

    config = {"listeners": {"mqtt_ws": {"port": 0, "origins": [PAGES]}, "mqtt": {"port": 0}}}
    broker = BrokerProcess(tmp_path_factory.mktemp("websocket"), config).start()
    yield broker.ports["mqtt_ws"]
    assert broker.stop() == 0


def connected(port):
    client = WebSocket(port)
    client.send(BytesMessage(wire.connect(wire.V311, f"ws-{id(client)}")))
    assert client.read(4) == b"\x20\x02\x00\x00"
    return client


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"target": "/other"}, 404),
        ({"subprotocols": ()}, 400),
        ({"subprotocols": ("amqp",)}, 400),
        ({"headers": [(b"origin", b"https://evil.example.org")]}, 403),
        ({"headers": [(b"origin", b"null")]}, 403),
    ],
    ids=str,
)
def test_handshake_that_is_not_for_mqtt_is_refused(port, options, status):
    """[MQTT-6.0.0-3]"""
    answer = WebSocket(port, **options).answer
    assert isinstance(answer, RejectConnection)
    assert answer.status_code == status


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subprotocols": ("other", "mqtt")},
        {"target": "/mqtt?token=x"},
        {"headers": [(b"origin", b"http://127.0.0.1:8000")]},
        {"headers": [(b"origin", PAGES.encode())]},
        {"headers": [(b"origin", PAGES.encode())], "host": "broker.example"},
        {"host": "broker.example"},
    ],
    ids=str,
)
def test_handshake_for_mqtt_is_accepted(port, options):
    """[MQTT-6.0.0-4]"""
    answer = WebSocket(port, **options).answer
    assert isinstance(answer, AcceptConnection)
    assert answer.subprotocol == "mqtt"


@pytest.mark.parametrize(
    ("host", "origin", "code"),
    [
        ("rebound.example:8083", b"http://rebound.example:8083", 0x87),
        ("localhost:8083", b"http://localhost:3000", 0),
        ("rebound.example", PAGES.encode(), 0),
        ("rebound.example", None, 0),  # no browser
    ],
    ids=str,
)
def test_a_page_that_had_its_name_changed_into_the_brokers_address_is_not_let_in(port, host, origin, code):
    client = WebSocket(port, host=host, headers=[(b"origin", origin)] if origin else [])
    client.send(BytesMessage(wire.connect(5, f"page-{code}")))
    assert client.read(4)[3] == code


def test_request_that_is_no_handshake_is_answered_and_closed(port):
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as client:
        client.sendall(b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while data := client.recv(4_096):
            answer += data
    assert answer.startswith(b"HTTP/1.1 4")


def test_packets_need_not_be_aligned_with_frames(port):
    """[MQTT-6.0.0-2]"""
    client = connected(port)
    packets = wire.subscribe("ws/t", 0, version=wire.V311) + wire.publish(
        "ws/t", b"x" * 500, version=wire.V311
    )
    for start in range(0, len(packets), 7):
        client.send(BytesMessage(packets[start : start + 7]))
    assert client.read(5) == b"\x90\x03\x00\x01\x00"
    assert client.read(509).endswith(b"x" * 500)
    half = len(packets) // 2
    client.send(BytesMessage(packets[:half], message_finished=False))
    client.send(BytesMessage(packets[half:]))
    assert client.read(5) == b"\x90\x03\x00\x01\x00"


def test_text_frame_ends_the_connection(port):
    """[MQTT-6.0.0-1]"""
    client = connected(port)
    client.send(TextMessage("hello"))
    goodbye = client.next()
    assert isinstance(goodbye, CloseConnection)
    assert goodbye.code == 1003


def test_frame_without_a_mask_ends_the_connection(port):
    client = connected(port)
    client.socket.sendall(b"\x82\x01x")
    goodbye = client.next()
    assert isinstance(goodbye, CloseConnection)
    assert goodbye.code == 1002


def test_ping_is_answered_with_pong(port):
    client = connected(port)
    client.send(Ping(b"there?"))
    pong = client.next()
    assert isinstance(pong, Pong)
    assert pong.payload == b"there?"


def test_goodbye_of_the_client_is_answered(port):
    client = connected(port)
    client.send(CloseConnection(1000))
    assert isinstance(client.next(), CloseConnection)
    assert client.socket.recv(10) == b""


def test_broker_that_ends_a_connection_says_so_in_mqtt_and_then_in_websocket(port):
    client = WebSocket(port)
    client.send(BytesMessage(wire.connect(wire.V5, "ws-twice")))
    assert client.read(1) == b"\x20"
    client.read(client.read(1)[0])
    client.send(BytesMessage(wire.connect(wire.V5, "ws-twice")))
    assert client.read(1) == b"\xe0"
    assert client.read(client.read(1)[0])[:1] == b"\x82"
    goodbye = client.next()
    assert isinstance(goodbye, CloseConnection)
    assert goodbye.code == 1000


def test_paho_publishes_and_subscribes(port):
    done = []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "ws-paho", transport="websockets")
    client.ws_set_options("/mqtt")
    client.on_message = lambda *args: done.append(args[-1].payload)
    client.on_subscribe = lambda *args: client.publish("ws/paho", b"y" * 100_000, 1)  # type: ignore[assignment]
    client.on_connect = lambda *args: client.subscribe("ws/paho", 1)  # type: ignore[assignment]
    client.connect("127.0.0.1", port)
    for _ in range(500):
        client.loop(0.02)
        if done:
            break
    assert done == [b"y" * 100_000]
    client.disconnect()


PAGE = """<script src="mqtt.js"></script><script>
const client = mqtt.connect("ws://127.0.0.1:PORT/mqtt", {protocolVersion: 5, clientId: "page"});
window.seen = [];
client.on("error", error => window.seen.push("error " + error));
client.on("message", (topic, payload) => { window.seen.push(topic + " " + payload); });
client.on("connect", () => client.subscribe("page/#", {qos: 1}, () =>
  client.publish("page/a", "from a page", {qos: 2})));
</script>"""


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *arguments):
        pass


def mqtt_js():
    """MQTT.js as browsers load it, from where npm put it."""
    found = os.environ.get("MQTT_JS") or next(
        (
            str(path)
            for path in (Path(root) / "mqtt/dist/mqtt.min.js" for root in npm_roots())
            if path.exists()
        ),
        "",
    )
    if not found:
        pytest.skip("MQTT.js is not installed (npm install -g mqtt, or MQTT_JS)")
    return Path(found)


def npm_roots():
    yield "node_modules"
    if shutil.which("npm"):
        yield subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, timeout=20).stdout.strip()


@pytest.mark.timeout(90)
def test_mqtt_js_in_a_page_of_a_browser(port, tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    shutil.copy(mqtt_js(), tmp_path / "mqtt.js")
    (tmp_path / "page.html").write_text(PAGE.replace("PORT", str(port)))
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as pages:
        threading.Thread(target=pages.serve_forever, args=(0.01,), daemon=True).start()
        with sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{pages.server_port}/page.html")
            page.wait_for_function("window.seen.length > 0", timeout=60_000)
            seen = page.evaluate("window.seen")
            browser.close()
        pages.shutdown()
    assert seen == ["page/a from a page"]
