import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import limits
from storage.errors import NotOpened
from storage.sealing.sealed_blocks import OVERHEAD_BYTES, Secret, number_of
from tests.unit.storage.sealing.rings import MARK, SALT, STORE_ID, ring

LARGE = limits.VALUE_PART_BYTES + 12_345


def test_block_matches_the_documented_vector():
    block = ring(7).seal(b"body", b"\x01\x01key")
    assert block[:32] == MARK + b"\x07\0" + SALT + bytes(8)
    assert block[32:].hex() == "d7c5a696181b783fc1851dc41851d57314521398"
    assert ring(7).open(block, b"\x01\x01key") == b"body"


def test_blocks_are_what_another_implementation_of_the_layout_opens():
    """Written with the standard's own words, beside `storage.sealing`."""
    from cryptography.hazmat.primitives import hashes, hmac
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    def mac(key, data):
        made = hmac.HMAC(key, hashes.SHA256())
        made.update(data)
        return made.finalize()

    seals = ring(7)
    for number in range(3):
        block = seals.seal(b"body", b"place")
        key = mac(mac(STORE_ID, bytes([7]) * 32), b"sluicemq block" + block[:24] + b"\x01")
        nonce = bytes(4) + number.to_bytes(8, "little")
        assert AESGCM(key).decrypt(nonce, block[32:], b"place") == b"body"


@given(st.binary(max_size=300), st.binary(min_size=1, max_size=40), st.integers(0, 65_535))
def test_what_is_sealed_opens_at_its_place_and_shows_nothing(value, place, number):
    seals = ring(7)
    block = seals.seal(value, place)
    assert seals.open(block, place) == value
    assert len(block) == len(value) + OVERHEAD_BYTES
    assert len(value) < 8 or value not in block
    at = number % len(block)
    with pytest.raises(NotOpened):
        seals.open(block[:at] + bytes([block[at] ^ 1 + number % 255]) + block[at + 1 :], place)
    with pytest.raises(NotOpened):
        seals.open(block[:at], place)
    with pytest.raises(NotOpened):
        seals.open(block, place + b"\0")


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.binary(max_size=30)), max_size=20))
def test_rows_are_sealed_each_with_a_nonce_of_its_own(rows):
    seals = ring(7)
    sealed = seals.seal_puts(rows)
    assert [(key, seals.open(block, key)) for key, block in sealed] == rows
    assert len({block[:32] for _, block in sealed}) == len(rows)


@pytest.mark.parametrize("parts", [1, 7])
def test_large_value_is_sealed_and_opened_in_steps(parts):
    value = bytes(range(256)) * (LARGE // 256)
    step = len(value) // parts + 1
    seals = ring(7)
    block = seals.seal_parts([value[at : at + step] for at in range(0, len(value), step)], len(value), b"p")
    assert len(block) == len(value) + OVERHEAD_BYTES
    assert seals.open(block, b"p") == value
    assert seals.seal(value, b"p")[40:] != block[40:]
    for at in (0, 9, 30, 40, len(block) // 2, len(block) - 1):
        with pytest.raises(NotOpened):
            seals.open(block[:at] + bytes([block[at] ^ 1]) + block[at + 1 :], b"p")
    with pytest.raises(NotOpened):
        seals.open(block, b"q")


def test_a_block_of_another_database_does_not_open():
    other = ring(7)
    other.store_id = bytes(16)
    other._openers.clear()
    with pytest.raises(NotOpened):
        other.open(ring(7).seal(b"body", b"p"), b"p")


def test_older_key_opens_and_the_first_seals():
    block = ring(1).seal(b"old", b"p")
    both = ring(2, 1)
    assert both.open(block, b"p") == b"old"
    assert number_of(block, MARK) == 1
    assert number_of(both.seal(b"new", b"p"), MARK) == 2
    with pytest.raises(NotOpened, match="key of number 1, which is not there"):
        ring(2).open(block, b"p")


def test_plain_value_is_taken_only_where_there_may_be_some():
    assert ring(1, has_plain=True).open(b"plain", b"p") == b"plain"
    assert number_of(b"plain", MARK) is None
    with pytest.raises(NotOpened, match="not encrypted"):
        ring(1).open(b"plain", b"p")


def test_another_key_is_derived_when_one_has_sealed_its_share(monkeypatch):
    monkeypatch.setattr(limits, "SEALING_BLOCKS_MAX", 3)
    salts = iter([bytes([number]) * 14 for number in range(9)])
    seals = ring(1)
    seals._salt = lambda size: next(salts)
    blocks = [seals.seal(b"x", b"p") for _ in range(8)]
    assert len({block[:24] for block in blocks}) == 3
    assert len({block[:32] for block in blocks}) == 8
    assert [seals.open(block, b"p") for block in blocks] == [b"x"] * 8


def test_derived_keys_that_are_kept_have_a_bound(monkeypatch):
    monkeypatch.setattr(limits, "SEALING_OPENERS_MAX", 4)
    blocks = [ring(1, salt=bytes([number]) * 14).seal(b"x", b"p") for number in range(20)]
    opens = ring(1)
    assert [opens.open(block, b"p") for block in blocks * 2] == [b"x"] * 40
    assert len(opens._openers) <= 4


def test_a_key_shows_itself_to_nobody():
    secret = Secret(1, "k", b"\xabsecret")
    assert "secret" not in repr(secret) + repr(ring(1))
