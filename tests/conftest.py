"""What all tests share: the markers, and when a marked test runs at all."""

import functools
import gc
import os

import pytest
from httpx._transports import default as httpx_transport
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers

# the same examples on every run, and no minutes spent on making a failing one smaller;
# `make fuzz` and HYPOTHESIS_PROFILE=explore look for new ones and do
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
)
settings.register_profile("explore", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=2_000)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "repeatable")
settings.load_profile(PROFILE)
if PROFILE == "repeatable":
    # Hypothesis tries constants it finds in the modules loaded so far: which these are depends on the
    # tests that ran before, and so would the examples
    providers.is_local_module_file = lambda path: False  # type: ignore[assignment,attr-defined]

# each httpx.get() reads the certificates of all public authorities otherwise: 40 ms of processor
httpx_transport.create_ssl_context = functools.cache(httpx_transport.create_ssl_context)  # type: ignore[attr-defined]

# what takes longest begins first: no process is left alone with it while the others have nothing to do
LONGEST_FIRST = ("whole", "crash", "storage_faults", "e2e", "model", "wheel", "unit/storage", "unit/broker")

PEER_VARIABLES = ("E2E_AMQP_PORT", "E2E_MQTT_PORT")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "extension: tests what only SluiceMQ does; skipped when another broker is tested"
    )
    config.addinivalue_line("markers", "timed: its broker is one whose clocks `pass_time` puts forward")
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave the thousands of tests out of each collection from here on; there was none on the way."""
    gc.freeze()
    gc.enable()


def _place(item: pytest.Item) -> int:
    folder = item.nodeid.removeprefix("tests/")
    return next(
        (n for n, begins in enumerate(LONGEST_FIRST) if folder.startswith(begins)), len(LONGEST_FIRST)
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`long` tests wait for `-m long`; tests of our extensions for our own broker."""
    items.sort(key=_place)
    asked_for = config.getoption("markexpr", default="") or ""
    foreign = any(os.environ.get(name) for name in PEER_VARIABLES)
    for item in items:
        if item.get_closest_marker("long") and "long" not in asked_for:
            item.add_marker(pytest.mark.skip(reason="long: run with -m long"))
        if foreign and item.get_closest_marker("extension"):
            item.add_marker(pytest.mark.skip(reason="only SluiceMQ does this"))
