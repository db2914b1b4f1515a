"""Errors carry what a close needs."""

from protocols.errors import ProtocolError


def test_protocol_error_carries_code_and_scope() -> None:
    error = ProtocolError(0x82, "second CONNECT")
    assert (error.code, error.reason, error.is_connection_error) == (0x82, "second CONNECT", True)
    assert str(error) == "130: second CONNECT"
    channel = ProtocolError(404, "no queue", class_id=50, method_id=10, is_connection_error=False)
    assert (channel.class_id, channel.method_id, channel.is_connection_error) == (50, 10, False)
