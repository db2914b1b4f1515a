"""Which broker commands ask: options before the environment before the user's file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from broker.commands.client_settings import URL_DEFAULT, ClientSettings, find_settings

Find = Callable[..., tuple[str, str | None, str | None]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sluicemq.yaml"


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """Finds the settings for options and variables; gives URL, user and password."""

    def find(
        url: str | None = None, user: str | None = None, **environment: str
    ) -> tuple[str, str | None, str | None]:
        found: ClientSettings = find_settings(
            url, user, None, {"XDG_CONFIG_HOME": str(tmp_path), **environment}
        )
        password = found.password
        return found.url, found.user, None if password is None else password.get_secret_value()

    return find


def write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)


def test_without_anything_it_is_the_listener_of_this_machine(find: Find) -> None:
    assert find() == (URL_DEFAULT, None, None)


def test_file_names_broker_and_login(find: Find, file: Path) -> None:
    write(file, "url: https://broker.example:15671\nuser: ann\npassword: pw\n")
    assert find() == ("https://broker.example:15671", "ann", "pw")
    assert find(user="ann") == ("https://broker.example:15671", "ann", "pw")
    assert find(url="https://broker.example:15671/") == ("https://broker.example:15671/", "ann", "pw")


def test_login_of_the_file_is_for_no_other_broker_and_its_password_for_no_other_user(
    find: Find, file: Path
) -> None:
    write(file, "url: https://broker.example\nuser: ann\npassword: pw\n")
    assert find(url="http://other.example") == ("http://other.example", None, None)
    assert find(SLUICEMQ_URL="http://other.example") == ("http://other.example", None, None)
    assert find(user="bob") == ("https://broker.example", "bob", None)


def test_options_win_over_the_environment_and_that_over_the_file(find: Find, file: Path) -> None:
    write(file, "url: http://file.example\n")
    given = {"SLUICEMQ_URL": "http://env.example", "SLUICEMQ_USER": "eve", "SLUICEMQ_PASSWORD": "e"}
    assert find(**given) == ("http://env.example", "eve", "e")
    assert find(url="http://option.example", **given) == ("http://option.example", "eve", "e")
    assert find(user="ann", **given) == ("http://env.example", "ann", None)


@pytest.mark.parametrize("text", ["url: [", "urll: http://x\n", "url: {a: 1}\n", "- a\n"])
def test_wrong_file_ends_the_command_with_its_path(
    find: Find, file: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(file, text)
    with pytest.raises(typer.Exit):
        find()
    assert str(file) in capsys.readouterr().err


def test_password_that_others_can_read_is_refused(
    find: Find, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(file, "user: ann\npassword: pw\n")
    file.chmod(0o644)
    with pytest.raises(typer.Exit):
        find()
    assert "chmod 600" in capsys.readouterr().err
