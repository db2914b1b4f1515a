"""AMQP 1.0: the way in on the port of AMQP 0.9.1, and out again."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from broker.version import PRODUCT
from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10.framing import encode_frame, encode_sasl_frame
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.raw_amqp import RawAmqp
from tests.e2e.raw_amqp10 import Management, RawAmqp10, message

Connect = Callable[..., RawAmqp10]


def test_both_versions_are_spoken_on_one_port(raw_amqp10: Connect, raw_amqp: Callable[..., RawAmqp]) -> None:
    newer = raw_amqp10()
    older = raw_amqp()
    assert newer.begin().remote_channel == 0
    assert older.open_channel() == 1


def test_open_tells_who_the_broker_is(raw_amqp10: Connect) -> None:
    opened = raw_amqp10().open
    assert opened.properties["product"] == "RabbitMQ"  # whose clients go away otherwise
    assert opened.properties["broker"].startswith(PRODUCT)
    assert opened.offered_capabilities == (
        "ANONYMOUS-RELAY",
        "DELAYED_DELIVERY",
        "LINK_PAIR_V1_0",
        "SHARED-SUBS",
    )
    assert "amqp:connection-establishment-failed" not in opened.properties
    assert opened.max_frame_size == 131_072


def test_headers_and_frames_may_come_one_octet_at_a_time(raw_amqp10: Connect) -> None:
    client = raw_amqp10(handshake=False)
    said = c.SASL_HEADER + encode_sasl_frame(p.SaslInit("PLAIN", b"\0guest\0guest"))
    said += c.AMQP_HEADER + encode_frame(0, p.Open("slow"))
    for octet in said:
        client.send_bytes(bytes((octet,)))
    client.expect_header(c.SASL_HEADER)
    client.expect(p.SaslMechanisms)
    assert client.expect(p.SaslOutcome).code == c.SASL_OK
    client.expect_header(c.AMQP_HEADER)
    client.expect(p.Open)


def test_all_of_the_handshake_may_come_at_once(raw_amqp10: Connect) -> None:
    client = raw_amqp10(handshake=False)
    client.send_bytes(
        c.SASL_HEADER
        + encode_sasl_frame(p.SaslInit("PLAIN", b"\0guest\0guest"))
        + c.AMQP_HEADER
        + encode_frame(0, p.Open("eager"))
        + encode_frame(0, p.Begin(None, 0, 10, 10))
    )
    client.expect_header(c.SASL_HEADER)
    client.expect(p.SaslMechanisms)
    client.expect(p.SaslOutcome)
    client.expect_header(c.AMQP_HEADER)
    client.expect(p.Open)
    client.expect(p.Begin)


def test_a_client_that_asks_for_tls_on_a_plain_port_is_told_to_use_sasl(raw_amqp10: Connect) -> None:
    client = raw_amqp10(handshake=False)
    client.send_bytes(c.TLS_HEADER)
    client.expect_header(c.SASL_HEADER)
    assert client.read() is None


def test_a_client_without_sasl_is_anonymous(raw_amqp10: Connect) -> None:
    client = raw_amqp10(handshake=False)
    client.greet()
    client.begin()
    assert Management(client, begin=False).ask("PUT", "/queues/without-sasl", {}).status == 201


def test_a_header_without_sasl_gets_the_one_that_is_wanted(
    own_broker: Callable[..., BrokerProcess], raw_amqp10: Connect
) -> None:
    broker = own_broker({"access": {"anonymous": "never"}})
    client = raw_amqp10(broker, handshake=False)
    client.send_bytes(c.AMQP_HEADER)
    client.expect_header(c.SASL_HEADER)
    assert client.read() is None


def test_a_wrong_password_is_an_outcome(raw_amqp10: Connect) -> None:
    client = raw_amqp10(handshake=False)
    assert client.log_in(password="wrong") == c.SASL_AUTH
    assert client.read() is None


def test_anonymous_clients_come_in_where_they_may(raw_amqp10: Connect) -> None:
    client = raw_amqp10(handshake=False)
    assert client.log_in(mechanism="ANONYMOUS") == c.SASL_OK


def test_anonymous_is_not_offered_where_nobody_comes_in_by_it(
    own_broker: Callable[..., BrokerProcess], raw_amqp10: Connect
) -> None:
    broker = own_broker({"access": {"anonymous": "never"}})
    client = raw_amqp10(broker, handshake=False)
    assert client.log_in() == c.SASL_OK
    assert client.mechanisms == ("PLAIN",)


def test_an_unknown_virtual_host_ends_the_connection(raw_amqp10: Connect) -> None:
    client = raw_amqp10(handshake=False)
    client.log_in()
    client.send_bytes(c.AMQP_HEADER + encode_frame(0, p.Open("x", "vhost:not-there")))
    client.expect_header(c.AMQP_HEADER)
    # by which RabbitMQ's Java client and Qpid's know that it is not open
    assert client.expect(p.Open).properties["amqp:connection-establishment-failed"] is True
    error = client.expect(p.Close).error
    assert error is not None
    assert error.condition == c.NOT_FOUND


def test_a_close_is_answered(raw_amqp10: Connect) -> None:
    client = raw_amqp10()
    client.send(0, p.Close())
    assert client.expect(p.Close).error is None


def test_an_unknown_handle_ends_the_session_and_not_the_connection(raw_amqp10: Connect) -> None:
    client = raw_amqp10()
    client.begin()
    client.transfer(b"", 9)
    error = client.expect(p.End).error
    assert error is not None
    assert error.condition == c.UNATTACHED_HANDLE
    client.send(0, p.End())
    client.begin(1)


def test_the_broker_says_goodbye_when_it_stops(
    own_broker: Callable[..., BrokerProcess], raw_amqp10: Connect
) -> None:
    broker: BrokerProcess = own_broker()
    client = raw_amqp10(broker)
    client.begin()
    broker.stop()
    error = client.expect(p.Close).error
    assert error is not None
    assert error.condition == c.CONNECTION_FORCED


def test_listings_name_the_protocol_its_sessions_and_its_links(
    own_broker: Callable[..., BrokerProcess], raw_amqp10: Connect
) -> None:
    broker = own_broker()
    client = raw_amqp10(broker, container="lister")
    client.begin(3)
    Management(client, channel=3, begin=False).ask("PUT", "/queues/listed", {})
    client.attach_receiver("/queues/listed", 5, channel=3, name="the-link")
    with httpx.Client(base_url=broker.http_url, auth=("guest", "guest"), trust_env=False) as http:
        (own,) = http.get("/api/v1/connections").json()["items"]
        (theirs,) = http.get("/api/connections").json()
        (channel,) = http.get("/api/channels").json()
        (consumer,) = http.get("/api/consumers").json()
    told = own["description"]
    assert (told["protocol"], told["client_id"], told["user"]) == ("AMQP 1.0", "lister", "guest")
    assert (theirs["protocol"], theirs["channels"]) == ("AMQP 1.0", 1)
    assert channel["number"] == 3
    assert (consumer["consumer_tag"], consumer["queue"]["name"]) == ("the-link", "listed")


def test_metrics_count_what_links_do(
    own_broker: Callable[..., BrokerProcess], raw_amqp10: Callable[..., RawAmqp10]
) -> None:
    broker = own_broker()
    client = raw_amqp10(broker)
    client.begin()
    limits = {"x-max-length": 3, "x-overflow": "reject-publish"}
    Management(client, begin=False).ask("PUT", "/queues/counted", {"arguments": limits})
    client.attach_sender("/queues/counted", 2)
    client.attach_sender("/exchanges/amq.direct/nothing", 3)
    for handle in (2, 2, 2, 2, 3):
        client.transfer(message(b"m"), handle)
    client.outcomes(5)
    client.attach_receiver("/queues/counted", 4, credit=3)
    ids = [client.receive().transfer.delivery_id or 0 for _ in range(3)]
    for number, state in zip(
        ids, (p.Accepted(), p.Rejected(), p.Modified(delivery_failed=True)), strict=True
    ):
        client.settle(number, state)
    client.give_credit(1, 4, delivery_count=3)
    client.settle(client.receive().transfer.delivery_id or 0, p.Accepted(), settled=False)
    client.expect(p.Disposition)
    with httpx.Client(base_url=broker.http_url, trust_env=False) as http:
        lines = http.get("/metrics").text.splitlines()
    counted = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    wanted = {
        "sluicemq_connections": 1,
        "sluicemq_messages_published_total": 3,
        "sluicemq_messages_delivered_total": 4,
        "sluicemq_messages_settled_total": 2,
        'sluicemq_messages_dropped_total{reason="refused"}': 1,
        'sluicemq_messages_dropped_total{reason="unrouted"}': 1,
        "sluicemq_messages_failed": 1,
    }
    assert {name: float(counted[name]) for name in wanted} == wanted
