import os
import socket
import sys

import pytest

from broker.network.tcp_ports import has_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's tables are Linux's")


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_port_belongs_to_the_process_that_listens(family, host):
    with socket.create_server((host, 0), family=family) as listening:
        port = listening.getsockname()[1]
        assert has_port(os.getpid(), port) is True
        assert has_port(os.getppid(), port) in (False, None)
    assert has_port(os.getpid(), port) is False


def test_process_that_is_gone_cannot_be_asked():
    assert has_port(0x7FFFFFFE, 1) is None
