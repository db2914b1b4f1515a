"""Names of virtual hosts, and of what is in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_manager import address
from queue_manager.errors import InvalidAddress

names = st.text(
    st.characters(exclude_characters="\0\x1d\x1e\x1f/+#$", exclude_categories=["Cs"]), min_size=1, max_size=20
)


@given(names)
def test_names_in_the_default_one_are_plain(name: str) -> None:
    assert address.qualified_name("/", name) == name
    assert (address.vhost_of(name), address.local_name(name)) == ("/", name)


@given(names, names, names)
def test_a_name_tells_its_virtual_host(vhost: str, name: str, other: str) -> None:
    qualified = address.qualified_name(vhost, name)
    assert (address.vhost_of(qualified), address.local_name(qualified)) == (vhost, name)
    assert address.sibling(qualified, other) == address.qualified_name(vhost, other)
    assert address.routing_key(f"$queue/{name}/eu/de", qualified) == "eu/de"


@pytest.mark.parametrize("name", ["", "v" * 129, "a/b", "a+", "#", "a\x1d", "a\n", "$a"])
def test_no_virtual_host_is_called_so(name: str) -> None:
    with pytest.raises(InvalidAddress):
        address.validate_vhost_name(name)
    with pytest.raises(InvalidAddress):
        address.validate_queue_name(f"{name}\x1djobs")


def test_the_default_one_may_be_named() -> None:
    assert address.validate_vhost_name("/") == "/"
