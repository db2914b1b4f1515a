"""Imports of the root's folders become imports from the package; nothing else changes."""

import pytest

from hatch_build import rewritten


@pytest.mark.parametrize(
    ("source", "packed"),
    [
        ("from broker import serve", "from sluicemq.broker import serve"),
        ("from broker.app import Broker  # it", "from sluicemq.broker.app import Broker  # it"),
        ("from  config.limits import (\n    A,\n)", "from  sluicemq.config.limits import (\n    A,\n)"),
        ("import storage.open as opening", "import sluicemq.storage.open as opening"),
        ("import os, storage as s, re", "import os, sluicemq.storage as s, re"),
        ("x = 1; from config import limits", "x = 1; from sluicemq.config import limits"),
        ("if x:\n    from config import limits", "if x:\n    from sluicemq.config import limits"),
        ('e = "é"; from config import limits', 'e = "é"; from sluicemq.config import limits'),
        ("import config as c, broker as b", "import sluicemq.config as c, sluicemq.broker as b"),
        ("from \\\n  config import limits", "from sluicemq.\\\n  config import limits"),
    ],
)  # fmt: skip
def test_an_import_of_a_folder_is_one_from_the_package(source, packed):
    assert rewritten(source.encode(), "x.py").decode() == packed


@pytest.mark.parametrize(
    "source",
    [
        "from . import broker",
        "from .config import limits",
        "from configuration import x",
        "from sluicemq import Broker",
        "import brokers",
        '"""\nfrom config comes what\nimport broker\n"""',
        'text = "from broker import x"  # from broker import x',
        "broker = config = 1",
        "",
    ],
)
def test_everything_else_stays_as_it_is(source):
    assert rewritten(source.encode(), "x.py").decode() == source


@pytest.mark.parametrize(
    "source",
    ["import broker", "import broker.app", "import os, config.limits", "from\\\n  config import limits"],
)
def test_an_import_that_cannot_be_rewritten_is_an_error_with_its_place(source):
    with pytest.raises(ValueError, match=r"^x\.py:2: write `from "):
        rewritten(f"\n{source}".encode(), "x.py")
