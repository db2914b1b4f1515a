"""Sockets: listeners, the transport of a connection, TLS, proxies, WebSocket."""
