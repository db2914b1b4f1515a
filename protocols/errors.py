"""Errors on a wire: the peer's fault, or ours."""


class ProtocolError(Exception):
    """The peer broke the protocol.

    `code` is the protocol's own reply or reason code and `reason` a text fit to show the peer.
    AMQP adds the class and method at fault, and whether the connection or only a channel must close.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        *,
        class_id: int = 0,
        method_id: int = 0,
        is_connection_error: bool = True,
    ) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason
        self.class_id = class_id
        self.method_id = method_id
        self.is_connection_error = is_connection_error

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"


class LocalProtocolError(Exception):
    """Our side asked for something the protocol does not allow now: a bug in the caller, never the peer's."""
