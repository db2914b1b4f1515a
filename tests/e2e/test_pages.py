"""The pages in a real browser: with data, empty, when something is wrong, and for who may not see them."""

import base64
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import argon2
import httpx
import paho.mqtt.client as paho
import pika
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from tests.e2e import staging
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
SCREENSHOTS = os.environ.get("SCREENSHOTS", "")  # a directory: every page is kept there as a picture

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.timeout(90),
]

PATHS = (
    "/",
    "/queues",
    "/streams",
    "/scheduled",
    "/dead-letters",
    "/exchanges",
    "/connections",
    "/sessions",
    "/topics",
    "/retained",
    "/epochs",
    "/policies",
    "/links",
    "/quotas",
    "/bans",
    "/vhosts",
)

ONES = ("/queues/orders", "/queues/events", "/exchanges/shop", "/login")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that complains of nothing: no script fails, nothing is kept out by the policy."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    yield page
    context.close()
    assert [each for each in complaints if "status of 4" not in each] == []


@pytest.fixture(scope="module")
def full_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with something of everything."""
    config = {
        "queues": [
            {"name": "orders", "topics": ["$queue/orders/#"], "groups": ["kitchen"], "dlq": "orders.failed"},
            {"name": "events", "type": "stream"},
        ]
    }
    process = BrokerProcess(tmp_path_factory.mktemp("pages"), config, storage="memory:").start()
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", process.amqp_port))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("shop", "topic", durable=True)
    for key in ("order.new.*", "order.paid.#"):
        channel.queue_bind("orders", "shop", key)
    channel.queue_bind("events", "amq.topic", "sensors.#")
    for number in range(30):
        body = b'{"table": %d, "dish": "soup"}' % number
        properties = pika.BasicProperties(content_type="application/json", headers={"number": number})
        channel.basic_publish("", "orders", body, properties)
        channel.basic_publish("", "events", b"\x00\xff%d" % number)
    channel.basic_publish("", "orders", b"later", pika.BasicProperties(headers={"x-delay": 3_600_000}))
    for _ in range(2):
        method, _, _ = channel.basic_get("orders")
        channel.basic_reject(method.delivery_tag, requeue=False)
    channel.basic_qos(prefetch_count=5)
    channel.basic_consume("orders", lambda *_: None, consumer_tag="cook")
    connection.process_data_events(0.5)
    staging.stage(channel, "orders", "row", producer="spark-job")
    stop = threading.Event()

    def keep_alive() -> None:
        while not stop.wait(0.2):
            channel.basic_publish("", "events", b"tick")
            connection.process_data_events(0)

    thread = threading.Thread(target=keep_alive)
    thread.start()
    away = MqttClient(
        process.mqtt_port, client_id="freezer", clean=False, SessionExpiryInterval=600
    ).connect()
    away.subscribe("cold/#", qos=1)
    away.disconnect()
    mqtt = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="thermometer", protocol=paho.MQTTv5)
    mqtt.connect("127.0.0.1", process.mqtt_port)
    mqtt.loop_start()
    mqtt.subscribe("alerts/#", 1)
    for room in ("cellar", "kitchen"):
        mqtt.publish(f"rooms/{room}/temperature", b"19.5", 1, retain=True).wait_for_publish(5)
    yield process
    stop.set()
    thread.join()
    connection.close()
    mqtt.disconnect()
    mqtt.loop_stop()
    assert process.stop() == 0


def _picture(page: Page, name: str) -> None:
    if SCREENSHOTS:
        page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}.png"), full_page=True)


def _fits(page: Page) -> bool:
    """Nothing makes the page wider than the screen."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_with_data_is_whole_on_any_screen(
    full_broker: BrokerProcess, page: Page, width: int, scheme: str
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for path in (*PATHS, "/users", *ONES, "/queues/orders?state=in_flight"):
        page.goto(full_broker.http_url + path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_role("heading", level=1)).not_to_have_text("That did not work")
        if path == "/":
            line = page.locator("figure polyline").first
            expect(line).to_be_attached(timeout=20_000)
            if SCREENSHOTS:  # with a line that one can see
                expect(line).to_have_attribute("points", re.compile(r"(\S+ ){3}"), timeout=20_000)
        assert _fits(page), path
        _picture(
            page, f"{path.strip('/').replace('/', '-').partition('?')[0] or 'overview'}-{scheme}-{width}"
        )


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_axe_finds_nothing_on_any_page(
    full_broker: BrokerProcess, browser: Browser, width: int, scheme: Literal["light", "dark"]
) -> None:
    axe = Axe()
    screen: ViewportSize = {"width": width, "height": 900}
    with browser.new_context(viewport=screen, color_scheme=scheme, bypass_csp=True) as context:
        page = context.new_page()
        for path in (*PATHS, "/users", *ONES):
            page.goto(full_broker.http_url + path)
            found = axe.run(page).response["violations"]
            assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], path


def test_every_page_of_an_empty_broker_says_that_there_is_nothing(
    own_broker: Callable[..., BrokerProcess], page: Page
) -> None:
    broker = own_broker()
    for path in (*PATHS, "/users"):
        page.goto(broker.http_url + path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if path not in ("/exchanges", "/topics", "/quotas", "/vhosts"):
            expect(page.locator(".empty").first).to_be_visible()
        assert _fits(page), path


def test_pages_show_messages_drawing_clients_and_deaths(full_broker: BrokerProcess, page: Page) -> None:
    page.goto(f"{full_broker.http_url}/queues/orders?group=&state=ready")
    expect(page.locator("pre", has_text='"dish": "soup"').first).to_be_visible()
    expect(page.get_by_role("row", name="spark-job")).to_be_visible()
    page.goto(f"{full_broker.http_url}/queues/events")
    expect(page.locator("pre", has_text="00 ff").first).to_be_visible()
    page.goto(f"{full_broker.http_url}/exchanges")
    assert page.locator("svg.drawing path").count() == 2
    expect(page.locator("svg.drawing")).to_contain_text("order.new.*, order.paid.#")
    page.goto(f"{full_broker.http_url}/sessions")
    expect(page.get_by_text("thermometer")).to_be_visible()
    expect(page.get_by_text("alerts/#")).to_be_visible()
    expect(page.get_by_role("row", name="freezer")).to_contain_text("away")
    page.goto(f"{full_broker.http_url}/dead-letters")
    page.get_by_role("link", name="orders.failed").click()
    page.get_by_text("Properties").first.click()
    expect(page.get_by_text("x-death").first).to_be_visible()


def test_forms_create_publish_move_and_delete(full_broker: BrokerProcess, page: Page) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    for name in ("made-here", "made-there"):
        page.goto(f"{full_broker.http_url}/queues")
        page.get_by_label("New queue").fill(name)
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("status")).to_have_text("It is there.")
    page.goto(f"{full_broker.http_url}/queues/made-here")
    page.get_by_text("Publish a message").click()
    page.get_by_label("Payload").fill("written <b>here</b>")
    page.get_by_role("button", name="Publish").click()
    expect(page.locator("pre", has_text="written <b>here</b>")).to_be_visible()
    page.get_by_text("Move, redrive, purge, delete").click()
    page.get_by_label("Move to queue").fill("made-there")
    page.get_by_role("button", name="Move", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("1 messages moved.")
    page.get_by_text("Move, redrive, purge, delete").click()
    page.get_by_role("button", name="Delete the queue").click()
    expect(page.get_by_role("status")).to_have_text("Deleted.")


def test_topics_are_followed_live(full_broker: BrokerProcess, page: Page) -> None:
    page.goto(f"{full_broker.http_url}/topics")
    page.get_by_label("Topic filter").fill("plant/+/temperature")
    page.get_by_role("button", name="Follow").click()
    expect(page.locator("#tail-state")).to_have_text("Following plant/+/temperature")
    mqtt = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    mqtt.connect("127.0.0.1", full_broker.mqtt_port)
    mqtt.loop_start()
    deadline = time.monotonic() + 20
    while "21.5" not in (page.locator("#tail").text_content() or "") and time.monotonic() < deadline:
        mqtt.publish("plant/a/temperature", "21.5", qos=1).wait_for_publish(5)
        mqtt.publish("plant/a/other", "no", qos=1).wait_for_publish(5)
        page.wait_for_timeout(200)
    mqtt.disconnect()
    mqtt.loop_stop()
    expect(page.locator("#tail")).to_contain_text("plant/a/temperature  21.5")
    expect(page.locator("#tail")).not_to_contain_text("plant/a/other")
    page.get_by_label("Topic filter").fill("a/#/b")
    page.get_by_role("button", name="Follow").click()
    expect(page.locator("#tail-state")).to_contain_text("must be the last level")


def test_what_is_not_there_and_what_is_refused_is_told(full_broker: BrokerProcess, page: Page) -> None:
    assert page.goto(f"{full_broker.http_url}/queues/nobody").status == 404
    expect(page.get_by_role("alert")).to_contain_text("no queue 'nobody'")
    for place in ("/queues/events?state=failed&group=nobody", "/retained?filter=rooms/%23/x"):
        page.goto(full_broker.http_url + place)
        expect(page.locator(".problem:visible")).to_have_count(1)


def test_a_page_number_that_nobody_gave_out_is_no_error(full_broker: BrokerProcess, page: Page) -> None:
    for path in (*PATHS, "/users"):
        answer = page.goto(f"{full_broker.http_url}{path}?after=~&session=~&queue=~&producer=~&name=~")
        assert answer.status == 200, path


def test_retained_messages_are_found_and_lead_to_their_topic(full_broker: BrokerProcess, page: Page) -> None:
    page.goto(f"{full_broker.http_url}/retained")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Topic filter").fill("rooms/cellar/#")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="rooms/cellar/temperature").click()
    expect(page.locator("input[name=filter]")).to_have_value("rooms/cellar/temperature")


def test_staged_epochs_of_all_queues_are_listed(full_broker: BrokerProcess, page: Page) -> None:
    page.goto(f"{full_broker.http_url}/epochs")
    expect(page.locator("tbody tr", has_text="spark-job")).to_contain_text("orders")
    page.get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("orders")


def test_pages_can_be_used_by_keyboard(full_broker: BrokerProcess, page: Page) -> None:
    page.goto(full_broker.http_url)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).not_to_have_text("Overview")


def test_who_may_only_look_sees_no_forms_and_who_may_not_sees_nothing(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path, browser: Browser
) -> None:
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=1024).hash("secret")
    permissions = [{"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}]
    users = [
        {"name": "worker", "password": hashed, "permissions": permissions},
        {"name": "watcher", "password": hashed, "tags": ["monitoring"], "permissions": permissions},
    ]
    path = tmp_path / "users.yaml"
    path.write_text(yaml.safe_dump({"users": users}))
    broker = own_broker({"access": {"users_file": str(path)}, "queues": [{"name": "q"}]})
    for user, status in (("worker", 403), ("watcher", 200)):
        shown = base64.b64encode(f"{user}:secret".encode()).decode()
        with browser.new_context(extra_http_headers={"Authorization": f"Basic {shown}"}) as context:
            page = context.new_page()
            for target in (*PATHS, "/queues/q"):
                assert page.goto(broker.http_url + target).status == status, (user, target)
            assert page.locator("form[method=post]").count() == 0
            assert page.get_by_role("link", name="Users").count() == 0
            assert page.goto(f"{broker.http_url}/users").status == 403
            refused = page.request.post(f"{broker.http_url}/queues/q/purge")
            assert refused.status == 403
    assert httpx.get(broker.http_url, trust_env=False, timeout=20).status_code in (401, 403)


def test_exchanges_are_made_bound_published_to_and_deleted(full_broker: BrokerProcess, page: Page) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{full_broker.http_url}/exchanges")
    page.get_by_label("New exchange").fill("from page/1")
    page.get_by_label("Type").select_option("headers")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Exchange from page/1")
    page.get_by_text("Bind, publish, delete").click()
    page.get_by_label("To", exact=True).fill("events")
    page.get_by_label("Arguments (JSON)").fill('{"x-match": "any", "kind": "it\'s \\"new\\""}')
    page.get_by_role("button", name="Bind", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("It is there.")
    page.get_by_text("Bind, publish, delete").click()
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("status")).to_have_text("No queue or subscriber wanted it.")
    page.get_by_role("button", name="Unbind").click()
    expect(page.locator(".empty")).to_have_text("Nothing is bound to it.")
    page.get_by_text("Bind, publish, delete").click()
    page.get_by_role("button", name="Delete the exchange").click()
    expect(page.get_by_role("status")).to_have_text("Deleted.")
    page.get_by_role("link", name="shop").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Exchange shop")


def test_settings_of_a_queue_are_shown_and_changed_and_its_policy_is_told(
    full_broker: BrokerProcess, page: Page
) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{full_broker.http_url}/policies")
    page.get_by_label("Name", exact=True).fill("short")
    page.get_by_label("Pattern of names").fill("^orders$")
    page.get_by_label("Definition (JSON)").fill('{"max-length": 700}')
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("row", name="short")).to_contain_text('{"max-length": 700}')
    page.goto(f"{full_broker.http_url}/queues/orders")
    page.get_by_text("Settings, policy short").click()
    expect(page.get_by_role("row", name="limits.max_depth")).to_contain_text("700")
    page.locator("select[name=key]").select_option("visibility_timeout")
    page.get_by_label("Value (empty: its default)").fill("7s")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("Changed.")
    page.get_by_text("Settings, policy short").click()
    expect(page.get_by_role("row", name="visibility_timeout")).to_contain_text("7s")
    page.goto(f"{full_broker.http_url}/policies")
    page.get_by_role("button", name="Delete").click()
    expect(page.locator(".empty")).to_be_visible()


def test_bans_quotas_and_links_are_made_and_deleted(full_broker: BrokerProcess, page: Page) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{full_broker.http_url}/bans")
    page.get_by_label("Of").select_option("address")
    page.get_by_label("Value").fill("10.0.0.0/8")
    page.get_by_label("For (1h; empty: for good)").fill("1h")
    page.get_by_role("button", name="Ban", exact=True).click()
    expect(page.get_by_role("row", name="10.0.0.0/8")).to_contain_text("address")
    page.get_by_role("button", name="End").click()
    expect(page.locator(".empty")).to_have_text("Nobody is kept out.")
    page.goto(f"{full_broker.http_url}/quotas")
    for most, shown in (("77", "77"), ("0", "–")):
        page.get_by_label("Name").fill("/")
        page.locator("select[name=quota]").select_option("exchanges")
        page.get_by_label("Most (0: no bound)").fill(most)
        page.get_by_role("button", name="Set", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("Changed.")
        expect(page.get_by_role("row", name="virtual host / exchanges")).to_contain_text(shown)
    page.goto(f"{full_broker.http_url}/links")
    page.get_by_label("Kind").select_option("federation-upstream")
    page.get_by_label("Name").fill("up")
    page.get_by_label("Definition (JSON)").fill('{"uri": "amqp://u:secret@nowhere.example"}')
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("row", name="federation-upstream up")).to_contain_text("u:***@nowhere.example")
    page.get_by_role("button", name="Delete").click()
    expect(page.locator(".empty")).to_have_text("No links to other brokers, no webhooks.")


def test_another_virtual_host_is_made_picked_and_deleted(full_broker: BrokerProcess, page: Page) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{full_broker.http_url}/vhosts")
    page.get_by_label("New virtual host").fill("plant-1")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("link", name="plant-1").click()
    expect(page.get_by_label("Virtual host")).to_have_value("plant-1")
    page.goto(f"{full_broker.http_url}/queues")
    expect(page.locator(".empty")).to_have_text("No queues.")
    page.get_by_label("New queue").fill("only-there")
    page.get_by_role("button", name="Create").click()
    page.get_by_label("Virtual host").select_option("/")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    assert page.goto(f"{full_broker.http_url}/queues/only-there").status == 404
    page.goto(f"{full_broker.http_url}/vhosts")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("link", name="plant-1")).to_have_count(0)


def test_columns_are_sorted_by_their_titles_and_stay_so(full_broker: BrokerProcess, page: Page) -> None:
    page.goto(f"{full_broker.http_url}/queues")
    ready = page.get_by_role("columnheader", name="Ready")
    for direction in ("ascending", "descending"):
        ready.get_by_role("button").click()
        expect(ready).to_have_attribute("aria-sort", direction)
    first = page.locator("tbody tr").first
    expect(first).to_contain_text("events")
    page.evaluate("document.querySelector('#listing tbody tr').dataset.old = 'yes'")
    expect(page.locator("tr[data-old]")).to_have_count(0, timeout=20_000)  # fetched again
    expect(first).to_contain_text("events")
    expect(ready).to_have_attribute("aria-sort", "descending")


def test_text_in_a_link_is_not_shown_as_if_the_broker_said_it(full_broker: BrokerProcess, page: Page) -> None:
    page.goto(f"{full_broker.http_url}/queues?done=Call+this+number&count=evil")
    assert page.get_by_role("status").count() == 0
    page.goto(f"{full_broker.http_url}/queues?done=dropped&count=evil")
    expect(page.get_by_role("status")).to_have_text("Some messages dropped.")


def test_people_log_in_on_a_page_and_out_and_a_broker_that_is_away_is_told(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path, browser: Browser
) -> None:
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=1024).hash("secret")
    permissions = [{"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}]
    users = [{"name": "ann", "password": hashed, "tags": ["administrator"], "permissions": permissions}]
    path = tmp_path / "users.yaml"
    path.write_text(yaml.safe_dump({"users": users}))
    path.chmod(0o600)
    broker = own_broker({"access": {"users_file": str(path)}, "queues": [{"name": "q"}]})
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{broker.http_url}/queues?name=q")
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        page.get_by_label("User").fill("ann")
        page.get_by_label("Password").fill("guessed")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert").locator("visible=true")).to_have_text("wrong user name or password")
        page.get_by_label("User").fill("ann")
        page.get_by_label("Password").fill("secret")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("link", name="q", exact=True)).to_be_visible()
        assert page.url == f"{broker.http_url}/queues?name=q"
        expect(page.locator(".me")).to_contain_text("ann")
        cookie = {each["name"]: each for each in context.cookies()}["sluicemq_session"]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        page.goto(f"{broker.http_url}/users")
        page.get_by_label("User", exact=True).fill("bob")
        page.get_by_label("Password").fill("other")
        page.get_by_label("Permissions in").select_option("/")
        page.get_by_role("button", name="Set", exact=True).click()
        expect(page.get_by_role("row", name="bob")).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        page.goto(f"{broker.http_url}/queues")
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        assert (
            httpx.get(f"{broker.http_url}/queues", cookies={"sluicemq_session": cookie["value"]}).status_code
            == 401
        )
        page.get_by_label("User").fill("ann")
        page.get_by_label("Password").fill("secret")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("link", name="q", exact=True)).to_be_visible()
        broker.kill9()
        expect(page.get_by_text("The broker does not answer")).to_be_visible(timeout=20_000)
