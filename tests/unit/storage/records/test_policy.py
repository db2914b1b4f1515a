from hypothesis import given
from hypothesis import strategies as st

from storage.records import PolicyKey, StoredPolicy, policy
from tests.unit.storage.record_checks import check_strict, i64, unhex

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def test_policy_matches_the_documented_vectors():
    assert policy.key(1, "/", "p") == unhex("01 30 01 2f 00 70")
    value = policy.encode(-1, "^a", "all", b"{}", b"{}")
    assert value == unhex(
        "ff ff ff ff ff ff ff ff 02 00 5e 61 03 00 61 6c 6c 02 00 00 00 7b 7d 02 00 00 00 7b 7d"
    )
    assert policy.decode(value) == StoredPolicy(-1, "^a", "all", b"{}", b"{}")
    check_strict(policy.decode, value)


@given(texts, texts, texts, i64, st.binary(max_size=20))
def test_policy_round_trips(vhost, name, pattern, priority, definition):
    key = PolicyKey(0, vhost, name)
    assert policy.parse_key(policy.key(*key)) == key
    stored = StoredPolicy(priority, pattern, "queues", definition, definition)
    assert policy.decode(policy.encode(*stored)) == stored
