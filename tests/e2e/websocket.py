"""A client of WebSocket."""

import socket

from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, Request

from tests.e2e.mqtt import WAIT_S


class WebSocket:
    """A client that sees every event."""

    def __init__(self, port, target="/mqtt", subprotocols=("mqtt",), headers=(), host="127.0.0.1"):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.connection = WSConnection(ConnectionType.CLIENT)
        self._events = []
        self._bytes = b""
        self.send(
            Request(
                host=host,
                target=target,
                subprotocols=list(subprotocols),
                extra_headers=list(headers),
            )
        )
        self.answer = self.next()

    def send(self, event):
        self.socket.sendall(self.connection.send(event))

    def next(self):
        while not self._events:
            data = self.socket.recv(65_536)
            self.connection.receive_data(data or None)
            self._events += self.connection.events()
        return self._events.pop(0)

    def read(self, size):
        """So many bytes of what the frames carry."""
        while len(self._bytes) < size:
            event = self.next()
            assert isinstance(event, BytesMessage), event
            self._bytes += event.data
        data, self._bytes = self._bytes[:size], self._bytes[size:]
        return data


class SocketOverWebSocket:
    """What a client that reads and writes bytes needs of a socket, over WebSocket."""

    def __init__(self, socket):
        self._socket = socket

    def sendall(self, data):
        self._socket.send(BytesMessage(data))

    def recv(self, size):
        event = self._socket.next()
        return bytes(event.data) if isinstance(event, BytesMessage) else b""

    def setsockopt(self, *option):
        self._socket.socket.setsockopt(*option)

    def settimeout(self, timeout_s):
        self._socket.socket.settimeout(timeout_s)

    def close(self):
        self._socket.socket.close()
