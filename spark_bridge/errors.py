"""What goes wrong, said so that whoever reads a Spark stack trace knows which option to look at."""


class SluiceError(Exception):
    """Base of what the bridge raises."""


class OptionError(SluiceError, ValueError):
    """An option or a column is unknown, missing or has a value it cannot have."""


class BrokerUnreachable(SluiceError):
    """No connection to the broker; trying again may help."""


class Refused(SluiceError):
    """The broker refused what was asked; trying again will not help."""


class CheckpointTooOld(Refused):
    """The query replays an epoch older than the last one in the queue: nothing it writes may be trusted."""


class DataLost(SluiceError):
    """Retention took messages before the query read them."""
