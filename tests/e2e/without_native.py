"""What is different in a broker that is tested without what is in C, but for its store.

Called in its process, as `tests.e2e.copied_process` begins it.
"""

from broker.mqtt import native


def change() -> None:
    """Make the difference."""
    native.Door = None
    native.joined = native.joined_in_python
    native.pass_on_each = None
