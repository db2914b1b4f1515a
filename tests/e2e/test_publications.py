"""A publish means the same by whatever way it comes: refused is nowhere, confirmed is kept."""

from typing import Any

import httpx
import pika
import pytest

from tests.e2e import amqp, staging
from tests.e2e import raw_mqtt as wire
from tests.e2e.amqp import Collector
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import V5, V311, MqttClient, payloads
from tests.e2e.test_amqp_exchanges import take_all
from tests.waiting import until

PUBLISH = "/api/exchanges/%2F/{}/publish"


@pytest.fixture
def http(broker: BrokerProcess):
    with httpx.Client(base_url=broker.http_url, auth=("guest", "guest"), trust_env=False) as client:
        yield client


def post(http: httpx.Client, exchange: str, key: str, body: str, **properties: Any) -> httpx.Response:
    """Publish by RabbitMQ's API."""
    message = {"routing_key": key, "payload": body, "payload_encoding": "string", "properties": properties}
    return http.post(PUBLISH.format(exchange), json=message)


LATER = {
    "another version": ({"version": V311}, "{}", {}),
    "a subscription identifier": ({}, "{}", {"identifier": 5}),
    "a share": ({}, "$share/g/{}", {}),
    "a session that lasts": ({"clean": False, "SessionExpiryInterval": 100}, "{}", {}),
    "another subscriber alike": ({}, "{}", {}),
}


@pytest.mark.parametrize("first_stays", [True, False], ids=["first stays", "first leaves"])
@pytest.mark.parametrize("later", LATER)
def test_subscriber_of_another_kind_that_joins_later_gets_every_confirmed_publish(
    mqtt, name, later, first_stays
):
    """Section 4.5: a topic's publisher first met only subscribers that are sent publishes as they came."""
    options, topic_filter, how = LATER[later]
    topic = f"t/{name}"
    device, first = mqtt(), mqtt()
    first.subscribe(topic, 1)
    device.publish(topic, "warm")
    first.take_one()
    if not first_stays:
        first.unsubscribe(topic)
    second = mqtt(**options)
    second.subscribe(topic_filter.format(topic), 1, **how)
    bodies = [str(number) for number in range(5)]
    assert [device.publish(topic, body) for body in bodies] == [0] * 5
    assert payloads(second.take(5)) == bodies
    if first_stays:
        assert payloads(first.take(5)) == bodies


def test_publish_that_a_full_session_refuses_is_in_no_queue(own_broker, mqtt, amqp_connect):
    """The device tries again: each try would add a copy."""
    broker = own_broker({"mqtt": {"sessions": {"drop": "reject", "max_queued_messages": 1}}})
    channel = amqp_connect(broker).channel()
    channel.queue_declare("bound", durable=True)
    channel.queue_bind("bound", "amq.topic", "t.a")
    away = mqtt(broker, client_id="away", clean=False, SessionExpiryInterval=100)
    away.subscribe("t/#", 1)
    away.disconnect()
    device = mqtt(broker)
    assert [device.publish("t/a", body) for body in ("1", "2", "2", "2")] == [0, 0x97, 0x97, 0x97]
    assert take_all(channel, "bound") == ["1"]
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("amq.topic", "t.a", "3", pika.BasicProperties(delivery_mode=2))
    assert take_all(channel, "bound") == []
    over_mqtt, over_amqp = [line for line in broker.log.splitlines() if "publish.refused" in line]
    assert "topic=t/a" in over_mqtt
    assert "exchange=amq.topic" in over_amqp
    assert all("session=away" in line for line in (over_mqtt, over_amqp))
    assert "queue=" not in over_mqtt + over_amqp, "no queue refused"


@pytest.mark.parametrize("keys", [("t.a", "t.b"), ("t.a", "t.a")], ids=["two topics", "one topic"])
def test_commit_beyond_the_room_of_a_session_is_refused_whole(own_broker, mqtt, amqp_connect, keys):
    broker = own_broker({"mqtt": {"sessions": {"drop": "reject", "max_queued_messages": 1}}})
    away = mqtt(broker, client_id="away", clean=False, SessionExpiryInterval=100)
    away.subscribe("t/#", 1)
    away.disconnect()
    channel = amqp_connect(broker).channel()
    channel.tx_select()
    for key in keys:
        channel.basic_publish("amq.topic", key, key, pika.BasicProperties(delivery_mode=2))
    refused_commit(channel)
    back = mqtt(broker, client_id="away", clean=False, SessionExpiryInterval=100)
    assert mqtt(broker).publish("t/c", "behind", 1) == 0
    assert payloads(back.take(1)) == ["behind"]


# transactions

IDENTITY = {"x-producer-id": "p", "x-producer-sequence": 1}


def properties(**headers: Any) -> pika.BasicProperties:
    return pika.BasicProperties(delivery_mode=2, headers=headers)


def refused_commit(channel: amqp.BlockingChannel) -> str:
    with pytest.raises(amqp.ChannelClosedByBroker) as refused:
        channel.tx_commit()
    assert refused.value.reply_code == 406
    return str(refused.value.reply_text)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (IDENTITY, "another body was published under the same identity"),
        ({"x-deduplication-id": "d"}, "another body was published under the same identity"),
    ],
)
def test_commit_of_a_publish_refused_for_its_identity_is_refused_whole(
    amqp_connect, channel, queue, headers, reason
):
    channel.basic_publish("", queue, "first", properties(**headers))
    transacted = amqp_connect().channel()
    transacted.tx_select()
    transacted.basic_publish("", queue, "beside", properties())
    transacted.basic_publish("", queue, "another body", properties(**headers))
    assert reason in refused_commit(transacted)
    assert take_all(channel, queue) == ["first"]


def test_identities_within_one_transaction_are_told_apart(amqp_connect, channel, queue):
    transacted = amqp_connect().channel()
    transacted.tx_select()
    for body in ("same", "same", "same"):
        transacted.basic_publish("", queue, body, properties(**{"x-deduplication-id": "d"}))
    transacted.tx_commit()
    assert take_all(channel, queue) == ["same"]
    for sequence, body in ((1, "1"), (2, "2"), (2, "another")):
        headers = {"x-producer-id": "p", "x-producer-sequence": sequence}
        transacted.basic_publish("", queue, body, properties(**headers))
    assert "same identity" in refused_commit(transacted)
    assert take_all(channel, queue) == []


def test_commit_of_a_publish_behind_a_refused_one_of_its_producer_is_refused(amqp_connect, channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", name, "1", properties(**IDENTITY))
    second = {"x-producer-id": "p", "x-producer-sequence": 2}
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", name, "2", properties(**second))
    assert take_all(channel, name) == ["1"]
    transacted = amqp_connect().channel()
    transacted.tx_select()
    third = {"x-producer-id": "p", "x-producer-sequence": 3}
    transacted.basic_publish("", name, "3", properties(**third))
    assert "send that first" in refused_commit(transacted)
    channel.queue_delete(name)


def test_commit_of_a_delayed_publish_into_a_paused_queue_is_refused(amqp_connect, channel, queue, http):
    assert http.post(f"/api/v1/queues/{queue}/pause", json={"publish": True}).is_success
    transacted = amqp_connect().channel()
    transacted.tx_select()
    transacted.basic_publish("", queue, "later", properties(**{"x-delay": 50}))
    assert "paused" in refused_commit(transacted)
    assert http.post(f"/api/v1/queues/{queue}/resume", json={"publish": True}).is_success
    assert take_all(channel, queue) == []


# over HTTP


def test_properties_mean_over_http_what_they_mean_over_amqp(http, channel, queue, name):
    copy = f"{name}-copy"
    channel.queue_declare(copy)
    headers = {"CC": [copy], "BCC": ["secret"], "x-delivery-count": 99, "x-death": [{"queue": "forged"}]}
    assert post(http, "amq.default", queue, "http", headers=headers, user_id="guest").json()["routed"]
    channel.basic_publish("", queue, "amqp", pika.BasicProperties(headers=headers, user_id="guest"))
    for body in (b"http", b"amqp"):
        _, seen, got = channel.basic_get(queue, auto_ack=True)
        assert (got, seen.user_id, seen.headers["CC"], "BCC" in seen.headers) == (
            body,
            "guest",
            [copy],
            False,
        )
        assert not {"x-delivery-count", "x-death"} & set(seen.headers)
    assert take_all(channel, copy) == ["http", "amqp"]
    channel.queue_delete(copy)


@pytest.mark.extension
@pytest.mark.parametrize("way", ["rabbitmq", "v1"])
def test_rows_staged_over_http_have_no_staging_headers_either(http, channel, queue, way):
    tag = {"x-stage-producer": "job", "x-stage-epoch": 0, "x-stage-part": 0, "x-stage-attempt": "a"}
    headers = {**tag, "mine": "1"}
    if way == "rabbitmq":
        answer = post(http, "amq.default", queue, "row", headers=headers)
    else:
        answer = http.post(f"/api/v1/queues/{queue}/messages", json={"body": "row", "headers": headers})
    assert answer.is_success, answer.text
    assert staging.commit(channel, queue, (0, "a", 1))["status"] == "committed"
    [row] = Collector(channel, queue, ack=True).wait(1)
    assert (row.body, row.properties.headers) == (b"row", {"mine": "1"})


@pytest.mark.parametrize("way", ["rabbitmq", "v1"])
def test_publish_in_the_name_of_another_user_is_refused_over_http(http, channel, queue, way):
    if way == "rabbitmq":
        refused = post(http, "amq.default", queue, "x", user_id="admin")
    else:
        message = {"body": "x", "properties": {"user_id": "admin"}}
        refused = http.post(f"/api/v1/queues/{queue}/messages", json=message)
    assert refused.status_code in (400, 409)
    assert "authenticated user was 'guest'" in refused.text
    assert take_all(channel, queue) == []


def test_publish_over_http_through_amq_topic_reaches_subscribers(http, mqtt, name):
    subscriber = mqtt()
    subscriber.subscribe(f"{name}/#", 1)
    assert post(http, "amq.topic", f"{name}.a", "x", delivery_mode=2).json() == {"routed": True}
    message = subscriber.take_one()
    assert (message.topic, message.payload, message.qos) == (f"{name}/a", b"x", 1)
    assert post(http, "amq.topic", f"other.{name}", "x").json() == {"routed": False}


@pytest.mark.parametrize("way", ["amqp", "tx", "http"])
def test_subscribers_hear_copies_too_and_each_once(amqp_connect, http, mqtt, name, way):
    main, copied, both = mqtt(), mqtt(), mqtt()
    main.subscribe(f"{name}/main", 1)
    copied.subscribe(f"{name}/copy", 1)
    both.subscribe(f"{name}/#", 1)
    headers = {"CC": [f"{name}.copy"]}
    if way == "http":
        post(http, "amq.topic", f"{name}.main", "x", headers=headers)
    else:
        channel = amqp_connect().channel()
        channel.tx_select()
        channel.basic_publish("amq.topic", f"{name}.main", "x", pika.BasicProperties(headers=headers))
        channel.tx_commit()
    for subscriber in (main, copied, both):
        assert subscriber.take_one().topic == f"{name}/main"
    assert both.quiet()


def test_forged_history_is_not_continued_by_a_dead_letter(channel, name):
    dead = f"{name}-dead"
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(name, durable=True, arguments=arguments)
    channel.queue_declare(dead, durable=True)
    forged = [{"queue": name, "reason": "rejected", "count": 5}]
    channel.basic_publish("", name, "x", pika.BasicProperties(headers={"x-death": forged}))
    method, _, _ = channel.basic_get(name)
    channel.basic_nack(method.delivery_tag, requeue=False)
    _, seen, _ = amqp.Collector(channel, dead, ack=True).wait(1)[0]
    assert [(death["queue"], death["count"]) for death in seen.headers["x-death"]] == [(name, 1)]
    for queue in (name, dead):
        channel.queue_delete(queue)


def test_direct_reply_in_the_name_of_another_user_is_refused(amqp_connect):
    asking, answering = amqp_connect().channel(), amqp_connect().channel()
    asking.queue_declare("", exclusive=True)
    replies: list[bytes] = []
    asking.basic_consume("amq.rabbitmq.reply-to", lambda *got: replies.append(got[3]), auto_ack=True)
    answering.queue_declare("asked")
    asking.basic_publish("", "asked", b"?", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    _, request, _ = amqp.Collector(answering, "asked", ack=True).wait(1)[0]
    answering.basic_publish("", request.reply_to, b"!", pika.BasicProperties(user_id="admin"))
    with pytest.raises(amqp.ChannelClosedByBroker, match="authenticated user was 'guest'"):
        answering.queue_declare("asked")
    assert replies == []


def test_transaction_with_a_direct_reply_in_the_name_of_another_user_does_nothing(amqp_connect, queue):
    asking, answering = amqp_connect().channel(), amqp_connect().channel()
    asking.queue_declare("", exclusive=True)
    asking.basic_consume("amq.rabbitmq.reply-to", lambda *got: None, auto_ack=True)
    asking.basic_publish("", queue, b"?", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    _, request, _ = amqp.Collector(answering, queue, ack=True).wait(1)[0]
    transacted = amqp_connect().channel()
    transacted.tx_select()
    transacted.basic_publish("", queue, b"beside")
    transacted.basic_publish("", request.reply_to, b"!", pika.BasicProperties(user_id="admin"))
    with pytest.raises(amqp.ChannelClosedByBroker, match="authenticated user was 'guest'"):
        transacted.tx_commit()
    answering.connection.close()
    assert take_all(asking, queue) == []


@pytest.mark.parametrize("version", [V5, V311])
def test_publish_taken_by_subscribers_and_refused_by_a_full_queue_is_told(mqtt, channel, name, version):
    channel.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.queue_bind(name, "amq.topic", f"{name}.t")
    subscriber, device = mqtt(), mqtt(version=version)
    subscriber.subscribe(f"{name}/t", 1)
    codes = [device.publish(f"{name}/t", body) for body in ("1", "2")]
    assert codes == ([0, 0x97] if version == V5 else [0, 0])  # 3.1.1 could only end the connection
    assert payloads(subscriber.take(2)) == ["1", "2"]
    assert take_all(channel, name) == ["1"]
    channel.queue_delete(name)


@pytest.mark.parametrize("unmatched", ["keep", "drop"])
def test_publish_that_no_group_wants_is_kept_or_its_publisher_is_told(http, mqtt, channel, name, unmatched):
    http.put(f"/api/v1/queues/{name}", json={"unmatched": unmatched}).raise_for_status()
    eu, device = mqtt(), mqtt()
    eu.subscribe(f"$queue/{name}/eu/#", 1, user=[("consumer-group", "eu")])
    codes = [device.publish(f"$queue/{name}/us/{number}", str(number)) for number in range(3)]
    view = http.get(f"/api/v1/queues/{name}").json()
    assert (view["unwanted"], view["unwanted_dropped"]) == ((3, 0) if unmatched == "keep" else (0, 3))
    metrics = http.get("/metrics").text.splitlines()
    assert f'sluicemq_queue_unwanted{{queue="{name}"}} {view["unwanted"]}' in metrics
    assert f'sluicemq_queue_unwanted_dropped_total{{queue="{name}"}} {view["unwanted_dropped"]}' in metrics
    if unmatched == "drop":
        assert codes == [0x10] * 3
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish("", f"$queue/{name}/us", "x", mandatory=True)
        assert http.post(f"/api/v1/queues/{name}/messages", json={"body": "x"}).status_code == 409
    else:
        assert codes == [0] * 3
        us = mqtt()
        us.subscribe(f"$queue/{name}/us/#", 1, user=[("consumer-group", "us")])
        assert payloads(us.take(3)) == ["0", "1", "2"]
    assert eu.quiet()
    channel.queue_delete(name)


@pytest.mark.parametrize("kind", ["live", "session"])
def test_dead_letters_through_amq_topic_reach_subscribers(mqtt, channel, name, kind):
    arguments = {"x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": f"{name}.dead"}
    channel.queue_declare(name, durable=True, arguments=arguments)

    def reject(body):
        amqp.publish(channel, name, body)
        method, _, _ = channel.basic_get(name)
        channel.basic_reject(method.delivery_tag, requeue=False)

    reject("nobody is there")
    options = {} if kind == "live" else {"client_id": name, "clean": False, "SessionExpiryInterval": 60}
    subscriber = mqtt(**options)
    subscriber.subscribe(f"{name}/#", 1)
    if kind == "session":
        subscriber.disconnect()
    reject("heard")
    if kind == "session":
        subscriber = mqtt(**options)
    message = subscriber.take_one()
    assert (message.topic, message.payload, message.qos) == (f"{name}/dead", b"heard", 1)
    channel.queue_delete(name)


@pytest.mark.parametrize("way", ["dead letter", "dead letter beside", "move", "copy", "redrive"])
def test_what_no_group_wants_does_not_go_within_the_broker_to_a_queue_that_drops_it(
    http, mqtt, channel, name, way
):
    dropping, beside = f"{name}-dropping", f"{name}-beside"
    http.put(f"/api/v1/queues/{dropping}", json={"unmatched": "drop"}).raise_for_status()
    eu = mqtt()
    eu.subscribe(f"$queue/{dropping}/eu/#", 1, user=[("consumer-group", "eu")])
    channel.exchange_declare(name, "fanout")
    channel.queue_bind(dropping, name)
    channel.queue_declare(beside)
    if way == "dead letter beside":
        channel.queue_bind(beside, name)
    channel.queue_declare(name, durable=True, arguments={"x-dead-letter-exchange": name})
    amqp.publish(channel, name, "x")
    if way.startswith("dead letter"):
        channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)
        until(lambda: http.get(f"/api/v1/queues/{dropping}").json()["unwanted_dropped"] == 1)
    else:
        path = "redrive-dead-letters" if way == "redrive" else way
        answer = http.post(f"/api/v1/queues/{name}/{path}", json={"to": dropping})
        assert answer.json() == {"count": 0}
    source, target = (http.get(f"/api/v1/queues/{queue}").json() for queue in (name, dropping))
    stays = {"dead letter": (0, 1), "dead letter beside": (0, 0)}
    assert (source["ready"], source["failed"]) == stays.get(way, (1, 0))
    assert (target["ready"], target["unwanted_dropped"]) == (0, 1)
    assert take_all(channel, beside) == (["x"] if way == "dead letter beside" else [])
    assert eu.quiet()
    for queue in (name, dropping, beside):
        channel.queue_delete(queue)
    channel.exchange_delete(name)


def test_dead_letters_through_an_exchange_called_as_their_queue_reach_subscribers(mqtt, channel, name):
    """It is no loop: what is called so on the way is not the queue."""
    channel.exchange_declare(name, "fanout")
    channel.exchange_bind("amq.topic", name)
    arguments = {"x-dead-letter-exchange": name, "x-dead-letter-routing-key": f"{name}.dead"}
    channel.queue_declare(name, arguments=arguments)
    subscriber = mqtt()
    subscriber.subscribe(f"{name}/dead")
    channel.basic_publish("", name, b"expired", pika.BasicProperties(expiration="1"))
    assert payloads([subscriber.take_one()]) == ["expired"]
    channel.queue_delete(name)
    channel.exchange_delete(name)


def test_client_that_is_first_in_its_virtual_host_hears_publishers_of_before(
    http, amqp_connect, broker, name
):
    http.put(f"/api/v1/vhosts/{name}", json={}).raise_for_status()
    channel = amqp_connect(vhost=name).channel()
    channel.confirm_delivery()
    channel.basic_publish("amq.topic", "a.b", "nobody is there")
    subscriber = MqttClient(broker.mqtt_port, username=f"{name}:guest", password="guest").connect()
    subscriber.subscribe("a/#", 1)
    channel.basic_publish("amq.topic", "a.b", "heard")
    assert subscriber.take_one().payload == b"heard"
    subscriber.drop()
    http.delete(f"/api/v1/vhosts/{name}").raise_for_status()


def test_mandatory_publish_with_properties_of_its_own_that_no_group_wants_comes_back(
    http, mqtt, channel, name
):
    """Publishes to one address whose properties all differ are taken together, also one alone."""
    http.put(f"/api/v1/queues/{name}", json={"unmatched": "drop"}).raise_for_status()
    eu = mqtt()
    eu.subscribe(f"$queue/{name}/eu/#", 1, user=[("consumer-group", "eu")])
    channel.confirm_delivery()
    for number in range(40):
        properties = pika.BasicProperties(message_id=str(number))
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish("", f"$queue/{name}/us", "x", properties, mandatory=True)
    channel.queue_delete(name)


def test_of_publishes_of_a_transaction_that_differ_a_queue_drops_those_no_group_wants(
    http, mqtt, amqp_connect, channel, name
):
    http.put(f"/api/v1/queues/{name}", json={"unmatched": "drop"}).raise_for_status()
    eu = mqtt()
    eu.subscribe(f"$queue/{name}/eu/#", 1, user=[("consumer-group", "eu")])
    transacted = amqp_connect().channel()
    transacted.tx_select()
    for number in range(8):
        key = f"$queue/{name}/{'us' if number < 4 else 'eu'}"
        transacted.basic_publish("", key, str(number), pika.BasicProperties(message_id=str(number)))
    transacted.tx_commit()
    assert [message.payload for message in eu.take(4)] == [b"4", b"5", b"6", b"7"]
    channel.queue_delete(name)


@pytest.mark.parametrize("way", ["AMQP transaction", "MQTT"])
def test_random_choice_holds_for_each_of_publishes_that_come_together(
    amqp_connect, raw_mqtt, channel, name, way
):
    names = [f"{name}-{number}" for number in range(2)]
    channel.exchange_declare(name, "x-random")
    for each in names:
        channel.queue_declare(each)
        channel.queue_bind(each, name)
    if way == "MQTT":
        channel.exchange_bind(name, "amq.topic", name)
        device = raw_mqtt()
        device.send_bytes(b"".join(wire.publish(name, b"x", qos=1, packet_id=1 + each) for each in range(40)))
        for _ in range(40):
            device.expect(wire.PUBACK)
    else:
        publisher = amqp_connect().channel()
        publisher.tx_select()
        for _ in range(40):
            publisher.basic_publish(name, "k", "x")
        publisher.tx_commit()
    counts = [len(take_all(channel, each)) for each in names]
    assert (sum(counts), min(counts) > 0) == (40, True)
    for each in names:
        channel.queue_delete(each)
    channel.exchange_delete(name)


@pytest.mark.parametrize("share", ["", "$share/g/"], ids=["a session", "a share of it"])
def test_qos_0_reaches_a_session_that_lasts_only_while_its_client_is_there(http, mqtt, name, share):
    """What is not kept for a client that is away has no taker: RabbitMQ's API says that it is not routed."""
    key = f"t.{name}"
    client = mqtt(client_id=name, clean=False, SessionExpiryInterval=100)
    client.subscribe(f"{share}t/{name}", qos=1)
    assert post(http, "amq.topic", key, "x").json() == {"routed": True}
    client.take_one()
    client.disconnect()
    until(lambda: not post(http, "amq.topic", key, "x").json()["routed"])
