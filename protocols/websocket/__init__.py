"""WebSocket (RFC 6455) as a transport of another protocol, without I/O."""
