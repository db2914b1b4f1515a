"""AMQP connections and channels: opening, being refused, heartbeats, closing."""

import pika
import pytest
from pamqp import commands
from pika.exceptions import AMQPConnectionError, ProbableAuthenticationError

from protocols.amqp10.constants import SASL_HEADER
from tests.e2e import amqp
from tests.e2e.raw_amqp import PROTOCOL_HEADER, RawAmqp
from tests.waiting import until


def test_connection_opens_and_closes(amqp_connect):
    connection = amqp_connect()
    assert connection.is_open
    connection.close()
    assert connection.is_closed


def test_server_properties_name_the_capabilities(raw_amqp):
    properties = raw_amqp().server_properties
    assert {"product", "version", "capabilities"} <= set(properties)
    assert properties["capabilities"] == dict.fromkeys(
        (
            "publisher_confirms",
            "exchange_exchange_bindings",
            "basic.nack",
            "consumer_cancel_notify",
            "connection.blocked",
            "consumer_priorities",
            "authentication_failure_close",
            "per_consumer_qos",
            "direct_reply_to",
        ),
        True,
    )


def test_wrong_password_is_403(broker):
    with pytest.raises(ProbableAuthenticationError, match=r"403.*ACCESS_REFUSED"):
        amqp.connect(broker.amqp_port, password="wrong")


def test_unknown_user_is_403(broker):
    with pytest.raises(ProbableAuthenticationError, match=r"403.*ACCESS_REFUSED"):
        amqp.connect(broker.amqp_port, user="nobody")


def test_unknown_login_mechanism_is_refused(raw_amqp):
    connection = raw_amqp(handshake=False)
    connection.start(mechanism="NO-SUCH-MECHANISM")
    reason = connection.close_reason()
    assert reason is None or reason[0] in (403, 503, 504, 530, 540)
    assert connection.wait_eof()


def test_unknown_vhost_is_530(broker):
    with pytest.raises(AMQPConnectionError, match="530"):
        amqp.connect(broker.amqp_port, vhost="nowhere")


def test_refused_login_leaves_other_connections_working(channel, queue, broker):
    with pytest.raises(AMQPConnectionError):
        amqp.connect(broker.amqp_port, password="wrong")
    amqp.publish(channel, queue, "still here")
    assert amqp.count(channel, queue) == 1


@pytest.mark.timed
def test_silent_client_gets_heartbeats_and_is_disconnected(broker, raw_amqp):
    """Section 2.3.5: two missed intervals and the peer is dead."""
    connection = raw_amqp(heartbeat=2)
    broker.pass_time(2.9)
    connection.open_channel()  # it is still there, and two intervals begin anew
    broker.pass_time(3)
    connection.call(1, commands.Channel.Flow(True), commands.Channel.FlowOk)
    broker.pass_time(7)
    assert connection.wait_eof(6)
    assert connection.heartbeats >= 1


@pytest.mark.timed
def test_heartbeats_keep_an_idle_connection(broker, amqp_connect, raw_amqp):
    connection = raw_amqp(heartbeat=2)
    for _ in range(4):
        connection.send_bytes(b"\x08\x00\x00\x00\x00\x00\x00\xce")
        amqp_connect().close()  # has its answer when the heartbeat has been read
        broker.pass_time(2.9)
    connection.open_channel()


@pytest.mark.timed
def test_heartbeat_0_switches_heartbeats_off(broker, raw_amqp):
    connection = raw_amqp(heartbeat=0)
    broker.pass_time(9)
    connection.open_channel()
    assert connection.heartbeats == 0


def test_other_protocol_version_is_answered_with_the_header_of_1_0_as_by_rabbitmq_4(raw_amqp):
    connection = raw_amqp(handshake=False)
    connection.send_bytes(b"AMQP\x01\x01\x00\x0a")  # AMQP 0-10
    answer = connection.read()
    assert answer is not None
    assert answer.payload == SASL_HEADER
    assert connection.wait_eof()


def test_channel_numbers_can_be_used_again(amqp_connect, queue):
    connection = amqp_connect()
    for _ in range(3):
        channels = [connection.channel(number) for number in range(1, 101)]
        for each in channels:
            assert each.queue_declare(queue, passive=True).method.queue == queue
        for each in channels:
            each.close()


def test_failed_channel_leaves_connection_and_number_usable(amqp_connect):
    connection = amqp_connect()
    for _ in range(3):
        failing = connection.channel(7)
        with pytest.raises(amqp.ChannelClosedByBroker):
            failing.queue_declare("no-such-queue", passive=True)
        assert connection.is_open


def test_one_channel_more_than_negotiated_is_530(raw_amqp):
    connection = raw_amqp(channel_max=2)
    connection.open_channel(1)
    connection.open_channel(9)  # channels are counted, whatever their numbers
    connection.send(2, commands.Channel.Open())
    assert connection.close_reason()[0] == 530


def test_frame_max_larger_than_offered_is_refused(raw_amqp):
    connection = raw_amqp(handshake=False)
    connection.start()
    tune = connection.expect(commands.Connection.Tune)
    assert tune.frame_max >= 4096
    connection.send(0, commands.Connection.TuneOk(tune.channel_max, tune.frame_max + 1, 0))
    connection.send_quietly(b"")
    reason = connection.close_reason()
    assert reason is None or reason[0] in (501, 502, 530)


@pytest.mark.extension  # RabbitMQ leaves hanging up to the client
@pytest.mark.timed
def test_close_of_the_client_is_answered(broker, raw_amqp):
    connection: RawAmqp = raw_amqp()
    connection.open_channel()
    connection.send(0, commands.Connection.Close(200, "bye", 0, 0))
    connection.expect(commands.Connection.CloseOk)
    broker.pass_time(6)
    assert connection.wait_eof()


def test_channel_flow_is_answered(raw_amqp):
    connection = raw_amqp()
    connection.open_channel()
    answer = connection.call(1, commands.Channel.Flow(True), commands.Channel.FlowOk)
    assert answer.active


def test_dropped_connection_deletes_its_exclusive_queue(raw_amqp, amqp_connect, name):
    dropped = raw_amqp()
    dropped.open_channel()
    dropped.call(1, commands.Queue.Declare(0, name, exclusive=True), commands.Queue.DeclareOk)
    dropped.drop()
    connection = amqp_connect()
    until(lambda: amqp.is_missing(connection, name))


def test_fifty_connections_publish_at_the_same_time(broker, queue):
    connections = [amqp.connect(broker.amqp_port) for _ in range(50)]
    try:
        for connection in connections:
            amqp.publish(connection.channel(), queue, "hello")
        assert all(isinstance(connection, pika.BlockingConnection) for connection in connections)
    finally:
        for connection in connections:
            amqp.close_quietly(connection)


def test_amqplain_login_is_let_in(raw_amqp):
    connection = raw_amqp(handshake=False)
    connection.send_bytes(PROTOCOL_HEADER)
    connection.expect(commands.Connection.Start)
    login = b"\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest"
    connection.send(0, commands.Connection.StartOk({}, "AMQPLAIN", login.decode("latin-1"), "en_US"))
    connection.expect(commands.Connection.Tune)


def test_what_was_exclusive_is_gone_with_close_ok_though_the_client_keeps_its_socket(raw_amqp, channel, name):
    connection = raw_amqp()
    connection.open_channel()
    connection.call(1, commands.Queue.Declare(0, name, exclusive=True), commands.Queue.DeclareOk)
    connection.call(0, commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
    channel.queue_declare(name, durable=True)
    connection.call(0, commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
    channel.queue_delete(name)


@pytest.mark.parametrize("secret", ["guest", "a password of nobody"])
def test_a_new_secret_of_a_user_with_a_password_is_taken_and_changes_nothing(raw_amqp, secret):
    connection = raw_amqp()
    renewed = commands.Connection.UpdateSecret(secret, "refreshed")
    connection.call(0, renewed, commands.Connection.UpdateSecretOk)
    connection.call(0, renewed, commands.Connection.UpdateSecretOk)
    connection.open_channel()


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        (commands.Channel.Flow(False), 540, "active=false"),
        (commands.Basic.Qos(10, 0, False), 540, "prefetch_size!=0 (10)"),
        (commands.Basic.Recover(False), 540, "requeue=false"),
        (commands.Basic.RecoverAsync(False), 540, "requeue=false"),
        (commands.Basic.Publish(immediate=True), 540, "immediate=true"),
    ],
)
def test_what_no_broker_of_today_does_is_540(raw_amqp, method, code, text):
    connection = raw_amqp()
    connection.open_channel()
    connection.send(1, method)
    reason = connection.close_reason()
    assert reason is not None
    assert (reason[0], reason[1], reason[2]) == (code, f"NOT_IMPLEMENTED - {text}", 0)


def test_flow_that_is_on_stays_on(raw_amqp):
    connection = raw_amqp()
    connection.open_channel()
    assert connection.call(1, commands.Channel.Flow(True), commands.Channel.FlowOk).active
