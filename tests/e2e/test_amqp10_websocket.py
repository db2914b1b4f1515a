"""AMQP over WebSocket: the AMQP WebSocket Binding."""

import pytest
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, RejectConnection, TextMessage

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from tests.e2e.raw_amqp10 import Management, RawAmqp10, message
from tests.e2e.websocket import SocketOverWebSocket, WebSocket


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    from tests.e2e.broker_process import BrokerProcess

    config = {"listeners": {"amqp_ws": {"port": 0}, "http": None}}
    broker = BrokerProcess(tmp_path_factory.mktemp("websocket"), config).start()
    yield broker.ports["amqp_ws"]
    assert broker.stop() == 0


def web_socket(port, subprotocol="amqp", target="/ws"):
    return WebSocket(port, target=target, subprotocols=(subprotocol,))


def test_messages_go_over_websocket(port):
    client = RawAmqp10(0, over=SocketOverWebSocket(web_socket(port)))
    client.begin()
    Management(client, begin=False).ask("PUT", "/queues/web", {})
    client.attach_sender("/queues/web", 2)
    number = client.transfer_in_parts(message(b"x" * 300_000), 2)
    assert client.outcomes(1) == {number: p.Accepted()}
    client.attach_receiver("/queues/web", 3, credit=1)
    assert client.receive().body == b"x" * 300_000
    client.drop()


def test_a_client_of_amqp_0_9_1_comes_in_as_well(port):
    client = web_socket(port)
    client.send(BytesMessage(b"AMQP\0\0\x09\x01"))
    assert client.read(1) == b"\x01"  # a method frame: connection.start
    client.socket.close()


@pytest.mark.parametrize(
    ("options", "status"), [({"subprotocol": "mqtt"}, 400), ({"target": "/mqtt"}, 404)], ids=str
)
def test_a_handshake_that_is_not_for_amqp_is_refused(port, options, status):
    answer = web_socket(port, **options).answer
    assert isinstance(answer, RejectConnection)
    assert answer.status_code == status


def test_the_subprotocol_is_told(port):
    answer = web_socket(port).answer
    assert isinstance(answer, AcceptConnection)
    assert answer.subprotocol == "amqp"


def test_a_text_frame_ends_the_connection(port):
    client = web_socket(port)
    client.send(TextMessage(data="AMQP"))
    assert isinstance(client.next(), CloseConnection)


def test_the_close_of_amqp_comes_before_that_of_websocket(port):
    web = web_socket(port)
    client = RawAmqp10(0, over=SocketOverWebSocket(web))
    client.send(0, p.Close())
    assert client.expect(p.Close).error is None
    event = web.next()
    assert isinstance(event, CloseConnection)
    assert event.code == 1000
    assert c.WEBSOCKET_SUBPROTOCOLS == ("amqp",)
