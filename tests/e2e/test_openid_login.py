"""Logins to the pages by OpenID Connect, at providers that run beside the broker."""

import base64
import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import httpx
import oidc_provider_mock
import pytest
import yaml
from playwright.sync_api import sync_playwright

from tests.e2e.broker_process import BrokerProcess
from tests.e2e.openid_provider import CLIENT, SECRET, Provider
from tests.waiting import until

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
USERS = {
    "ann": {"aud": "mq", "scope": "mq.tag:administrator mq.configure:*/* mq.read:*/* mq.write:*/*"},
    "bob": {"aud": "mq", "scope": "mq.tag:monitoring mq.read:*/*"},
    "eve": {"aud": "else", "scope": "mq.tag:administrator mq.read:*/*"},
}


@pytest.fixture(scope="module")
def provider():
    provider = Provider(USERS)
    yield provider
    provider.close()


@pytest.fixture(autouse=True)
def as_it_was(provider):
    yield
    provider.id_claims, provider.access_claims, provider.seconds = {}, {}, 600
    provider.refreshes, provider.renewed_id_claims = False, None
    provider.refresh_tokens.clear()


def settings_of(provider, directory, **openid):
    (directory / "client-secret").write_text(SECRET + "\n")
    openid = {"client_id": CLIENT, "client_secret_file": str(directory / "client-secret"), **openid}
    tokens = {"issuer": provider.issuer, "resource_server_id": "mq", "leeway": 0}
    return {"anonymous": "never", "jwt": tokens, "openid": openid}


@pytest.fixture(scope="module")
def broker(tmp_path_factory, provider):
    directory = tmp_path_factory.mktemp("openid")
    process = BrokerProcess(directory, {"access": settings_of(provider, directory)}, timed=True).start()
    provider.redirect_uris.append(f"{process.http_url}/login/openid/callback")
    yield process
    process.kill9()
    for secret in (SECRET, base64.b64encode(SECRET.encode()).decode(), "eyJ"):
        assert secret not in process.log


@pytest.fixture
def browser(broker, provider):
    for _ in range(4):
        broker.pass_time(9)  # after failures of tests before a login waits
    provider.ahead_s = broker.ahead_s
    with httpx.Client(trust_env=False, timeout=20) as client:
        yield client


def begin(broker, browser, target="/queues"):
    """Where the issuer is to lead the browser back to, with its state; the URL of the issuer's page."""
    answer = browser.get(f"{broker.http_url}/login/openid", params={"next": target})
    assert answer.status_code == 303
    return answer.headers["location"]


def consent(browser, url, sub="ann"):
    """Log in at the issuer; gives the URL that it leads back to."""
    assert browser.get(url).status_code == 200
    answer = browser.post(url, data={"sub": sub})
    assert answer.status_code == 302
    return answer.headers["location"]


def log_in(broker, browser, sub="ann", target="/queues"):
    return browser.get(consent(browser, begin(broker, browser, target), sub))


def is_in(broker, browser):
    return browser.get(f"{broker.http_url}/queues", headers={"accept": "text/html"}).status_code == 200


def test_a_browser_is_logged_in_by_the_provider_and_led_to_its_page(broker, provider, browser):
    asked = browser.get(f"{broker.http_url}/queues?x=1", headers={"accept": "text/html"})
    page = browser.get(broker.http_url + asked.headers["location"])
    begun = re.search(r'href="(/login/openid\?next=[^"]*)"', page.text)[1]
    url = browser.get(broker.http_url + begun).headers["location"]
    query = parse_qs(urlsplit(url).query)
    assert query["code_challenge_method"] == ["S256"]
    answer = browser.get(consent(browser, url))
    assert answer.status_code == 200
    assert 'content="0;url=/queues?x=1"' in answer.text
    cookies = answer.headers.get_list("set-cookie")
    session = next(each for each in cookies if each.startswith("sluicemq_session="))
    assert "HttpOnly" in session
    assert "SameSite=strict" in session
    page = browser.get(f"{broker.http_url}/queues", headers={"accept": "text/html"})
    assert page.status_code == 200
    assert "<span>ann</span>" in page.text


def test_the_tags_of_the_token_say_what_its_user_may_do(broker, browser):
    log_in(broker, browser, "bob")
    assert is_in(broker, browser)
    assert browser.post(f"{broker.http_url}/queues", data={"queue": "q"}).status_code == 403
    log_in(broker, browser, "ann")
    made = browser.put(f"{broker.http_url}/api/v1/queues/by-ann", json={})
    assert made.status_code == 200


def test_logout_ends_the_session_here_and_at_the_provider(broker, provider, browser):
    log_in(broker, browser)
    before = browser.cookies["sluicemq_session"]
    answer = browser.post(f"{broker.http_url}/logout")
    url = re.search(r'content="0;url=([^"]*)"', answer.text)[1].replace("&amp;", "&")
    assert browser.get(url).headers["location"] == f"{broker.http_url}/login"
    assert provider.ended[-1]["id_token_hint"].startswith("eyJ")
    assert provider.ended[-1]["client_id"] == CLIENT
    browser.cookies.set("sluicemq_session", before)
    assert not is_in(broker, browser)


def test_a_session_ends_with_its_token(broker, provider, browser):
    provider.seconds = 30
    log_in(broker, browser)
    assert is_in(broker, browser)
    broker.pass_time(9)
    assert is_in(broker, browser)
    for _ in range(3):
        broker.pass_time(9)
    assert not is_in(broker, browser)


def expire(broker, provider):
    for _ in range(4):
        broker.pass_time(9)
    provider.ahead_s = broker.ahead_s


def test_a_session_is_renewed_by_the_provider_once_for_all_that_ask(broker, provider, browser):
    provider.seconds, provider.refreshes = 30, True
    log_in(broker, browser)
    before = provider.refreshed_count
    for number in (1, 2):
        expire(broker, provider)
        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(lambda _: is_in(broker, browser), range(8)))
        assert provider.refreshed_count == before + number


@pytest.mark.parametrize(
    ("id_claims", "access_claims", "stays"),
    [
        ({}, {}, True),
        (None, {"sub": "bob"}, False),
        (None, {"aud": "else"}, False),
        (None, {"exp": 1_000_000}, False),
        (None, {"scope": ""}, False),
        ({"sub": "bob"}, {}, False),
        ({"sub": "bob"}, {"sub": "bob"}, False),
        ({"aud": "another program"}, {}, False),
    ],
)
def test_a_renewed_session_is_what_its_new_tokens_say(
    broker, provider, browser, id_claims, access_claims, stays
):
    provider.seconds, provider.refreshes = 30, True
    log_in(broker, browser)
    expire(broker, provider)
    provider.access_claims, provider.renewed_id_claims = access_claims, id_claims
    assert is_in(broker, browser) == stays


def test_a_session_that_the_provider_ended_is_not_renewed(broker, provider, browser):
    provider.seconds, provider.refreshes = 30, True
    log_in(broker, browser)
    provider.refresh_tokens.clear()
    assert is_in(broker, browser)
    expire(broker, provider)
    before = provider.refreshed_count
    assert not is_in(broker, browser)
    assert not is_in(broker, browser)
    assert provider.refreshed_count == before + 1
    assert "http.session_ended" in broker.log


def refusals(broker):
    return broker.log.count("http.login_refused")


@pytest.mark.parametrize(
    ("id_claims", "access_claims", "sub"),
    [
        ({"nonce": "another"}, {}, "ann"),
        ({"nonce": 7}, {}, "ann"),
        ({"aud": "another program"}, {}, "ann"),
        ({"aud": [CLIENT, "another"]}, {}, "ann"),
        ({"aud": [CLIENT, "another"], "azp": "another"}, {}, "ann"),
        ({"exp": 1_000_000}, {}, "ann"),
        ({"iss": "https://evil.example"}, {}, "ann"),
        ({}, {"sub": "bob"}, "ann"),
        ({}, {"iss": "https://evil.example"}, "ann"),
        ({}, {"exp": 1_000_000}, "ann"),
        ({}, {}, "eve"),  # the token is for somebody else
    ],
)
def test_tokens_that_do_not_fit_let_nobody_in(broker, provider, browser, id_claims, access_claims, sub):
    provider.id_claims, provider.access_claims = id_claims, access_claims
    before = refusals(broker)
    answer = log_in(broker, browser, sub)
    assert answer.status_code == 401
    assert "sluicemq_session" not in browser.cookies
    assert refusals(broker) == before + 1


def test_a_login_that_this_browser_did_not_begin_is_refused(broker, browser):
    """RFC 6749, 10.12: somebody else's code, given to this browser."""
    with httpx.Client(trust_env=False) as attacker:
        location = consent(attacker, begin(broker, attacker), "bob")
    assert browser.get(location).status_code == 401  # no login was begun
    begin(broker, browser)
    answer = browser.get(location)  # another one was
    assert answer.status_code == 401
    assert "not begun in this browser" in answer.text
    assert "sluicemq_session" not in browser.cookies


def test_a_login_is_not_finished_twice_or_late(broker, browser):
    location = consent(browser, begin(broker, browser))
    cookies = dict(browser.cookies)
    assert browser.get(location).status_code == 200
    assert "sluicemq_login" not in browser.cookies
    assert browser.get(location).status_code == 401
    for name, value in cookies.items():
        browser.cookies.set(name, value)
    assert browser.get(location).status_code == 401  # the provider takes a code once
    location = consent(browser, begin(broker, browser))
    for _ in range(61):
        broker.pass_time(9.9)
    assert browser.get(location).status_code == 401


def test_a_cookie_that_was_changed_is_none(broker, browser):
    location = consent(browser, begin(broker, browser))
    value = browser.cookies["sluicemq_login"].strip('"')
    data = bytearray(base64.urlsafe_b64decode(value))
    data[-5] ^= 1
    for wrong in (base64.urlsafe_b64encode(data).decode(), "", "x", "AAAA", "%%%"):
        browser.cookies.clear()
        browser.cookies.set("sluicemq_login", wrong)
        assert browser.get(location).status_code == 401


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "/%0a//x\n",
        "javascript:x",
        '/"><script>',
    ],
)
def test_a_login_leads_to_no_other_site(broker, browser, target):
    page = log_in(broker, browser, target=target).text
    led = re.search(r'content="0;url=([^"]*)"', page)[1]
    assert led == "/" or (target.startswith('/"') and led == "/%22%3E%3Cscript%3E")


def test_what_the_provider_says_of_a_refusal_is_told_by_its_word_only(broker, browser):
    def back(error):
        state = parse_qs(urlsplit(begin(broker, browser)).query)["state"][0]
        query = {"state": state, "error": error, "error_description": "call 0800-EVIL"}
        return browser.get(f"{broker.http_url}/login/openid/callback", params=query)

    answer = back("access_denied")
    assert answer.status_code == 401
    assert "refused access" in answer.text
    assert "EVIL" not in answer.text
    assert "<b>" not in back("<b>call").text


def test_a_page_of_another_site_logs_nobody_out(broker, browser):
    log_in(broker, browser)
    evil = {"origin": "https://evil.example"}
    assert browser.post(f"{broker.http_url}/logout", headers=evil).status_code == 403
    assert is_in(broker, browser)


def test_a_provider_that_is_away_is_told_and_comes_back(tmp_path, provider):
    gone = Provider(USERS)
    gone.close()
    process = BrokerProcess(tmp_path, {"access": settings_of(gone, tmp_path)}).start()
    try:
        for _ in range(3):
            answer = httpx.get(f"{process.http_url}/login/openid", trust_env=False)
            assert answer.status_code == 502
        assert "does not answer" in answer.text
        assert process.log.count("access.issuer_failed") == 1  # it is not asked each time
        process.config["access"] = settings_of(provider, tmp_path)
        process.config_file.write_text(yaml.safe_dump(process.config), "utf-8")
        os.kill(process.pid, signal.SIGHUP)
        until(lambda: "config.reloaded" in process.log)
        assert httpx.get(f"{process.http_url}/login/openid", trust_env=False).status_code == 303
    finally:
        process.kill9()


def test_without_a_provider_there_is_no_such_login(tmp_path):
    process = BrokerProcess(tmp_path, {}).start()
    try:
        assert httpx.get(f"{process.http_url}/login/openid", trust_env=False).status_code == 404
        assert "openid" not in httpx.get(f"{process.http_url}/login", trust_env=False).text
    finally:
        process.kill9()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_person_logs_in_and_out_with_a_provider_that_others_wrote(tmp_path):
    """With `oidc-provider-mock`, whose access tokens are no JSON web tokens: the ID token says it all."""
    claims = {"roles": ["mq.tag:administrator", "mq.read:*/*"], "name": "Ann"}
    user = oidc_provider_mock.User(sub="ann", claims=claims)
    with oidc_provider_mock.run_server_in_thread(user_claims=[user]) as server:
        issuer = f"http://localhost:{server.server_port}"
        tokens = {"issuer": issuer, "resource_server_id": "mq", "additional_scopes_key": "roles"}
        (tmp_path / "secret").write_text("any")
        openid = {
            "client_id": "page",
            "client_secret_file": str(tmp_path / "secret"),
            "rights_from": "id_token",
        }
        access = {"anonymous": "never", "jwt": tokens, "openid": openid}
        process = BrokerProcess(tmp_path, {"access": access}).start()
        try:
            with sync_playwright() as playwright:
                chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                page = chromium.new_page()
                page.goto(f"{process.http_url}/exchanges")
                page.get_by_role("link", name="Log in with").click()
                page.get_by_role("button", name="ann").first.click()
                page.wait_for_url(f"{process.http_url}/exchanges")
                assert page.get_by_text("ann", exact=True).count() == 1
                page.get_by_role("button", name="Log out").click()
                page.wait_for_url(f"{issuer}/oauth2/end_session*")
                page.goto(f"{process.http_url}/exchanges")
                assert page.url.startswith(f"{process.http_url}/login")
                chromium.close()
        finally:
            process.kill9()
