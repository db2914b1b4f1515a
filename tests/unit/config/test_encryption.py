"""What `storage.encryption` may say."""

import pytest

from config.settings_loader import ConfigError, load_text


def problems(keys: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_text(f"storage: {{encryption: {{keys: {keys}}}}}")
    return refused.value.problems


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ("[]", "at least 1 item"),
        ("[{id: a}]", "has one of file, command and url"),
        ("[{id: a, file: x, url: 'https://h/'}]", "has one of file, command and url"),
        ("[{id: 'a b', file: x}]", "must be 1 to 64 of A-Z"),
        ("[{file: x}]", "required key is missing"),
        ("[{id: a, file: x}, {id: a, file: y}]", "'a' is already the ID of keys[0]"),
        ("[{id: a, url: 'http://elsewhere/'}]", "must begin with https://"),
        ("[{id: a, file: x, token_file: y}]", "token_file is for the service"),
        ("[{id: a, key: abc}]", "unknown key"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(keys, reason):
    assert any(reason in problem for problem in problems(keys)), problems(keys)


def test_keys_are_loaded_in_their_order():
    text = "[{id: b, command: [wrap, -v]}, {id: a, file: /k}, {id: c, url: 'https://h/', token_file: /t}]"
    encryption = load_text(f"storage: {{encryption: {{keys: {text}}}}}").storage.encryption
    assert encryption is not None
    assert [key.id for key in encryption.keys] == ["b", "a", "c"]
    assert encryption.keys[0].command == ("wrap", "-v")
    assert load_text("storage: {url: x}").storage.encryption is None
