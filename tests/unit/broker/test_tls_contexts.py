"""broker.network.tls.contexts: every certificate of a listener comes with its rules."""

import ssl

import pytest

from broker.network.tls.contexts import make_context
from broker.network.tls.gate import certificate_names
from broker.network.tls.making import Authority, write_pair
from config.settings import TlsSettings

HOSTS = ("broker.example", "other.example", "any.wild.example")


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority.made()
    made = {
        "server": authority.issue(HOSTS[0], [HOSTS[0]], is_server=True),
        "other": authority.issue(HOSTS[1], [HOSTS[1]], is_server=True),
        "wild": authority.issue("wild", ["*.wild.example"], is_server=True),
        "device": authority.issue("device-7", is_server=False),
        "stranger": Authority.made().issue("device-7", is_server=False),
    }
    write_pair(directory, "ca", authority.key, authority.certificate)
    for name, pair in made.items():
        write_pair(directory, name, *pair)
    return directory


def shown(pems, certificate, host, kind):
    """The names of the client's certificate as the server sees them after a handshake with that host."""

    def pair(name):
        return {"cert": str(pems / f"{name}.crt"), "key": str(pems / f"{name}.key")}

    names = [{"name": HOSTS[1], **pair("other")}, {"name": "*.wild.example", **pair("wild")}]
    authority = str(pems / "ca.crt")
    settings = TlsSettings(**pair("server"), client_ca=authority, client_certificate=kind, names=names)
    client_context = ssl.create_default_context(cafile=authority)
    if certificate:
        client_context.load_cert_chain(pems / f"{certificate}.crt", pems / f"{certificate}.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = make_context("mqtts", settings).wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    left = [client, server]
    while left:
        for side in list(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                pass
    return certificate_names(server)


@pytest.mark.parametrize("kind", ["required", "optional"])
@pytest.mark.parametrize("host", HOSTS)
def test_client_certificates_are_looked_at_whatever_name_is_asked_for(pems, host, kind):
    assert "cn:device-7" in shown(pems, "device", host, kind)
    with pytest.raises(ssl.SSLError):
        shown(pems, "stranger", host, kind)


@pytest.mark.parametrize("host", HOSTS)
def test_a_certificate_that_is_required_is_so_whatever_name_is_asked_for(pems, host):
    with pytest.raises(ssl.SSLError):
        shown(pems, "", host, "required")
    assert shown(pems, "", host, "optional") == ()
