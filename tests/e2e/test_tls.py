"""TLS with other people's clients, and certificates made here."""

import contextlib
import datetime
import socket
import ssl
import subprocess
from pathlib import Path

import httpx
import paho.mqtt.client as paho
import pika
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from broker.access.passwords import hashed
from broker.network.tls.making import Authority, write_pair
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.users_file import save_users
from protocols.amqp10.constants import SASL_OK
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.raw_amqp10 import Management, RawAmqp10, message
from tests.waiting import until

HOSTS = ["localhost", "127.0.0.1"]
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker with TLS: clients of mqtts need a certificate, those of amqps may have one."""
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority.made()
    made = {
        "server": authority.issue("localhost", HOSTS, is_server=True),
        "other": authority.issue("other.example", ["other.example"], is_server=True),
        "device": authority.issue("device-7", is_server=False),
        "nobody": authority.issue("device-8", is_server=False),
        "expired": authority.issue("device-7", is_server=False, days=-1),
        "revoked": authority.issue("device-7", is_server=False),
        "stranger": Authority.made().issue("device-7", is_server=False),
    }
    write_pair(directory, "ca", authority.key, authority.certificate)
    write_pair(directory, "foreign-ca", *_pair(Authority.made()))
    for name, pair in made.items():
        write_pair(directory, name, *pair)
    (directory / "crl.pem").write_bytes(_revoked(authority, made["revoked"][1]))
    pem = {"cert": str(directory / "server.crt"), "key": str(directory / "server.key")}
    pem["client_ca"] = str(directory / "ca.crt")
    other = {
        "name": "other.example",
        "cert": str(directory / "other.crt"),
        "key": str(directory / "other.key"),
    }
    right = PermissionSettings(configure="^dev-", write="^dev-", read="^dev-")
    users = UserSettings(name="seven", certificates=("cn:device-7",), permissions=(right,))
    boss = UserSettings(name="boss", password=hashed(b"pw"), permissions=(PermissionSettings(**EVERYTHING),))
    save_users(directory / "users.yaml", UsersSettings(users=(users, boss)))
    config = {
        "access": {"users_file": str(directory / "users.yaml"), "anonymous": "never"},
        "listeners": {
            "mqtts": {"port": 0, "tls": {**pem, "crl": str(directory / "crl.pem")}},
            "mqtt_wss": {"port": 0, "tls": pem},
            "https": {"port": 0, "tls": {**pem, "client_certificate": "optional", "plain": True}},
            "mqcores": {"port": 0, "tls": {**pem, "client_certificate": "optional"}},
            "amqps": {
                "port": 0,
                "tls": {**pem, "client_certificate": "optional", "plain": True, "names": [other]},
            },
        },
    }
    process = BrokerProcess(directory, config).start()
    yield process
    process.kill9()


def _pair(authority):
    return authority.key, authority.certificate


def _revoked(authority, certificate):
    now = datetime.datetime.now(datetime.UTC)
    entry = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number).revocation_date(now)
    crl = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(now - datetime.timedelta(hours=1))
        .next_update(now + datetime.timedelta(days=1))
        .add_revoked_certificate(entry.build())
    )
    return crl.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def client_context(process, certificate="", ca="ca"):
    context = ssl.create_default_context(cafile=process.directory / f"{ca}.crt")
    if certificate:
        context.load_cert_chain(
            process.directory / f"{certificate}.crt", process.directory / f"{certificate}.key"
        )
    return context


def shake_hands(port, context, host="localhost"):
    """The socket after a handshake; in TLS 1.3 a refused client certificate shows when reading."""
    connection = context.wrap_socket(
        socket.create_connection(("127.0.0.1", port), timeout=5), server_hostname=host
    )
    connection.settimeout(5)
    return connection


def pika_connect(port, context, credentials=None):
    options = pika.SSLOptions(context, "localhost")
    credentials = credentials or pika.PlainCredentials("boss", "pw")
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1", port, ssl_options=options, connection_attempts=1, credentials=credentials
        )
    )


def test_pika_publishes_and_consumes_over_tls(secured, name):
    connection = pika_connect(secured.ports["amqps"], client_context(secured))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(name)
    body = bytes(range(256)) * 8_000  # larger than a record, a frame and a buffer
    channel.basic_publish("", name, body)
    assert channel.basic_get(name, auto_ack=True)[2] == body
    connection.close()


def test_the_page_and_administration_are_served_over_tls(secured):
    url = f"https://localhost:{secured.ports['https']}"
    with httpx.Client(base_url=url, verify=client_context(secured), trust_env=False) as client:
        assert client.get("/api/v1/health").json() == {"status": "ok"}
        assert client.get("/api/v1/overview").status_code == 401
        assert client.get("/api/v1/overview", auth=("boss", "pw")).status_code in (200, 403)


@pytest.mark.parametrize(
    ("certificate", "login", "status"),
    [
        ("device", None, 201),
        ("device", ("boss", "pw"), 201),
        ("device", ("boss", "wrong"), 401),
        ("nobody", None, 401),
        ("", None, 401),
        ("", ("boss", "pw"), 201),
    ],
)
def test_mq_core_over_tls_knows_who_calls(secured, name, certificate, login, status):
    amqp_port = secured.ports["amqps"]
    channel = pika_connect(amqp_port, client_context(secured), pika.PlainCredentials("boss", "pw")).channel()
    channel.queue_declare(f"dev-{name}", durable=True)
    url = f"https://localhost:{secured.ports['mqcores']}"
    context = client_context(secured, certificate)
    with httpx.Client(base_url=url, verify=context, trust_env=False, auth=login) as client:
        answer = client.post(f"/dev-{name}/messages", content=b"x")
    assert answer.status_code == status
    assert channel.basic_get(f"dev-{name}", auto_ack=True)[2] == (b"x" if status == 201 else None)
    channel.connection.close()


def test_a_certificate_says_who_calls_over_http_and_no_other_may_do_more(secured, name):
    url = f"https://localhost:{secured.ports['https']}"
    with httpx.Client(base_url=url, verify=client_context(secured, "device"), trust_env=False) as client:
        assert client.put(f"/api/v1/queues/dev-{name}", json={}).status_code == 200
        refused = client.put(f"/api/v1/queues/{name}", json={})
        assert (refused.status_code, refused.json()["error"]) == (403, "refused")
        assert "'seven'" in refused.json()["reason"]


def test_an_http_port_for_both_takes_clients_without_tls(secured):
    plain = httpx.get(f"http://localhost:{secured.ports['https']}/api/v1/health", trust_env=False, timeout=20)
    assert plain.json() == {"status": "ok"}


def test_a_port_for_both_takes_clients_without_tls(secured, name):
    connection = amqp.connect(secured.ports["amqps"], user="boss", password="pw")
    connection.channel().queue_declare(name, exclusive=True)
    connection.close()


def test_a_port_for_tls_only_takes_no_clients_without(secured):
    with socket.create_connection(("127.0.0.1", secured.ports["mqtts"]), timeout=5) as client:
        client.sendall(CONNECT)
        try:
            received = client.recv(100)
        except ConnectionResetError:
            received = b""
        assert received[:1] in (b"", b"\x15")  # an alert, or the end


@pytest.mark.parametrize(("listener", "transport"), [("mqtts", "tcp"), ("mqtt_wss", "websockets")])
def test_paho_with_a_certificate_publishes_over_tls(secured, name, listener, transport):
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5, transport=transport)
    client.ws_set_options("/mqtt")
    client.tls_set_context(client_context(secured, "device"))
    client.connect("localhost", secured.ports[listener])
    client.loop_start()
    published = client.publish(f"$queue/dev-{name}", b"x", 1)
    published.wait_for_publish(5)
    assert published.is_published()
    until(client.is_connected)
    client.disconnect()
    client.loop_stop()


@contextlib.contextmanager
def publisher_and_subscriber(secured, topic_filter, listener, transport):
    """Both, and the messages that come."""
    received, clients = [], []
    for _ in range(2):
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5, transport=transport)
        client.ws_set_options("/mqtt")
        client.tls_set_context(client_context(secured, "device"))
        client.connect("localhost", secured.ports[listener])
        client.loop_start()
        until(client.is_connected)
        clients.append(client)
    subscriber, publisher = clients
    subscribed = []
    subscriber.on_subscribe = lambda *_: subscribed.append(True)
    subscriber.on_message = lambda _client, _data, message: received.append((message.topic, message.payload))
    subscriber.subscribe(topic_filter, 1)
    until(lambda: subscribed)
    yield publisher, received
    for client in clients:
        client.disconnect()
        client.loop_stop()


LISTENERS = pytest.mark.parametrize(
    ("listener", "transport"), [("mqtts", "tcp"), ("mqtt_wss", "websockets")], ids=["tcp", "websockets"]
)


@LISTENERS
def test_publishes_that_wait_for_each_puback_come_over_tls_in_order(secured, name, listener, transport):
    topic = f"dev-{name}"
    sent = [(topic, b"%d %s" % (number, b"x" * (number * 7 % 300))) for number in range(200)]
    with publisher_and_subscriber(secured, topic, listener, transport) as (publisher, received):
        for _, body in sent:
            publisher.publish(topic, body, 1).wait_for_publish(5)
        until(lambda: len(received) >= len(sent), told=lambda: len(received))
        assert received == sent


@LISTENERS
def test_publishes_to_many_topics_come_over_tls_in_order(secured, name, listener, transport):
    topics = [f"dev-{name}/{number}" for number in range(50)]
    sent = [(topics[number % 50], b"%d %s" % (number, b"x" * (number * 7 % 300))) for number in range(1_000)]
    with publisher_and_subscriber(secured, f"dev-{name}/+", listener, transport) as (publisher, received):
        for topic, body in sent:
            publisher.publish(topic, body, 1)
        until(lambda: len(received) >= len(sent), told=lambda: len(received))
        assert received == sent


def test_mosquitto_pub_with_a_certificate_publishes_over_tls(secured, name):
    command = ["mosquitto_pub", "-h", "localhost", "-p", str(secured.ports["mqtts"]), "-q", "1"]
    command += ["-t", f"$queue/dev-{name}", "-m", "x", "--cafile", secured.directory / "ca.crt"]
    pair = ["--cert", secured.directory / "device.crt", "--key", secured.directory / "device.key"]
    try:
        told = subprocess.run([*command, *pair], capture_output=True, timeout=15, check=False)
    except FileNotFoundError:
        pytest.skip("mosquitto-clients are not installed")
    assert told.returncode == 0, told.stderr
    assert subprocess.run(command, capture_output=True, timeout=15, check=False).returncode != 0


def test_a_certificate_is_its_user(secured, name):
    context = client_context(secured, "device")
    connection = pika_connect(secured.ports["amqps"], context, pika.credentials.ExternalCredentials())
    channel = connection.channel()
    channel.queue_declare(f"dev-{name}", exclusive=True)
    with pytest.raises(amqp.ChannelClosedByBroker, match="refused for user 'seven'"):
        channel.queue_declare(name, exclusive=True)
    connection.close()


def test_a_certificate_is_its_user_over_amqp_1_0(secured, name):
    port = secured.ports["amqps"]
    client = RawAmqp10(port, handshake=False, over=shake_hands(port, client_context(secured, "device")))
    assert client.log_in(mechanism="EXTERNAL") == SASL_OK
    assert "EXTERNAL" in client.mechanisms
    client.greet()
    management = Management(client)
    assert management.ask("PUT", f"/queues/dev-{name}", {"exclusive": True}).status == 201
    refused = management.ask("PUT", f"/queues/{name}", {"exclusive": True})
    assert refused.status == 403
    assert "refused for user 'seven'" in refused.body
    body = bytes(range(256)) * 2_000  # larger than a record, a frame and a buffer
    client.attach_sender(f"/queues/dev-{name}", 5)
    client.transfer_in_parts(message(body), 5)
    client.outcomes(1)
    client.attach_receiver(f"/queues/dev-{name}", 6, credit=1)
    assert client.receive().body == body
    client.drop()


def test_a_certificate_of_nobody_lets_nobody_in(secured):
    for certificate in ("", "nobody"):
        context = client_context(secured, certificate)
        with pytest.raises((amqp.AMQPError, OSError)):
            pika_connect(secured.ports["amqps"], context, pika.credentials.ExternalCredentials())


@pytest.mark.parametrize("certificate", ["", "expired", "revoked", "stranger", "server"])
def test_client_certificates_that_are_not_good_are_refused(secured, certificate):
    context = client_context(secured, certificate)
    try:
        with shake_hands(secured.ports["mqtts"], context) as connection:
            connection.sendall(CONNECT)
            answer = connection.recv(100)
    except OSError:  # ssl's, or a reset
        answer = b""
    assert not answer
    assert "tls.handshake_failed" in secured.log


def test_clients_notice_a_wrong_host_and_an_unknown_authority(secured):
    port = secured.ports["amqps"]
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(port, client_context(secured), "wrong.example")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer|self-signed"):
        shake_hands(port, client_context(secured, ca="foreign-ca"))


def test_the_name_that_is_asked_for_chooses_the_certificate(secured):
    for host in ("other.example", "localhost"):
        with shake_hands(secured.ports["amqps"], client_context(secured), host) as connection:
            names = dict(part[0] for part in connection.getpeercert()["subject"])
            assert names["commonName"] == host


@pytest.mark.parametrize(("option", "is_taken"), [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)])
def test_openssl_speaks_tls_from_1_2_on(secured, option, is_taken):
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{secured.ports['amqps']}", option, "-brief"]
    command += ["-CAfile", secured.directory / "ca.crt", "-verify_return_error"]
    told = subprocess.run(command, input=b"AMQP\0\0\x09\x01", capture_output=True, timeout=15, check=False)
    assert (b"Verification: OK" in told.stderr) is is_taken, told.stderr


@pytest.mark.parametrize("cipher", ["AES128-SHA", "ECDHE-ECDSA-AES128-SHA", "AES128-GCM-SHA256"])
def test_weak_ciphers_are_refused(secured, cipher):
    context = client_context(secured)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(cipher + ":@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        shake_hands(secured.ports["amqps"], context)


def test_a_broker_does_not_start_with_a_certificate_that_it_cannot_use(tmp_path):
    pem = {"cert": str(tmp_path / "no.crt"), "key": str(tmp_path / "no.key")}
    process = BrokerProcess(tmp_path, {"listeners": {"amqps": {"port": 0, "tls": pem}}})
    assert process.spawn().wait(20) == 1
    assert "listeners.amqps.tls" in process.log
    assert "No such file" in process.log


def test_certificates_of_the_command_let_clients_in(tmp_path):
    from broker.network.tls.making import make_client, make_server, own_hosts

    make_server(tmp_path, own_hosts())
    make_client(tmp_path, "device")
    assert (tmp_path / "server.key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        make_server(tmp_path, own_hosts())
    pem = {"cert": str(tmp_path / "server.crt"), "key": str(tmp_path / "server.key")}
    pem["client_ca"] = str(tmp_path / "ca.crt")
    process = BrokerProcess(tmp_path, {"listeners": {"amqps": {"port": 0, "tls": pem}}}).start()
    try:
        context = ssl.create_default_context(cafile=Path(pem["client_ca"]))
        context.load_cert_chain(tmp_path / "device.crt", tmp_path / "device.key")
        pika_connect(process.ports["amqps"], context, pika.PlainCredentials("guest", "guest")).close()
    finally:
        process.kill9()
