"""`docs/configuration.md` names every key with its default, and no other."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from config import schema
from config.queue_settings import QueueSettings
from config.settings import Settings
from config.settings_loader import default_file_text, load_settings
from config.yaml_tree import read_yaml

PAGE = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text("utf-8")
ROWS = {
    cells[0].strip("` "): [cell.strip() for cell in cells[1:]]
    for cells in (line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| `"))
}


# what is not there by default stands there behind comment signs; of listeners with a blank, as a key
LISTENERS_OPEN = re.sub(r"^  # ((?:  )*)(\w+:)", r"  \1\2", default_file_text(), flags=re.MULTILINE)
DEFAULT_FILE = re.sub(
    r"^# (cluster:| {2}(?:lease|listen|node|client_address|secret_file|shards|tls):| {4}\w+_file:)",
    r"\1",
    LISTENERS_OPEN,
    flags=re.MULTILINE,
)


def _key_rows() -> dict[str, list[str]]:
    """The cells of each key; a row of `listeners.*` is that of all listeners that have the key."""
    rows: dict[str, Any] = {}
    keys = _documented_keys()
    for name, cells in ROWS.items():
        if "*" in name:
            pattern = re.escape(name).replace(r"\*", r"\w+")
            covered = {key for key in keys if re.fullmatch(pattern, key)}
            assert covered, name
            rows |= dict.fromkeys(covered, cells)
        elif name == "workers" or re.match(
            r"(storage|cluster|listeners|mqtt|queue_manager|queues|access|log|telemetry)[.\[]", name
        ):
            rows[name] = cells
    return rows


def _documented_keys() -> set[str]:
    keys = {schema.dotted(path) for path, key in schema.paths() if len(path) > 1 or key.section is None}
    for path, key in schema.paths(QueueSettings):
        if key.section is None:
            keys.add("queues[]." + schema.dotted(path))
        elif key.is_list:
            keys |= {f"queues[].{schema.dotted(path)}[].{name}" for name in schema.keys_of(key.section)}
    return keys


def test_configuration_page_names_every_key_and_no_other() -> None:
    assert set(_key_rows()) == _documented_keys()


def test_variables_are_named_by_the_rule_of_the_configuration_page() -> None:
    assert "`SLUICEMQ_LISTENERS__MQTTS__TLS__CERT` `listeners.mqtts.tls.cert`" in PAGE
    for path, _ in schema.paths():
        name = "SLUICEMQ_" + schema.dotted(path).upper().replace(".", "__")
        assert name == schema.environment_name(path)


@pytest.mark.parametrize("name", sorted(name for name in _key_rows() if "[]" not in name))
def test_configuration_page_gives_the_default_of_each_key(name: str) -> None:
    default = _key_rows()[name][1].strip("`")
    if default:
        value = yaml.safe_load(DEFAULT_FILE)
        for part in name.split("."):
            value = value[part]
        assert yaml.safe_load(default) == value


def test_default_file_names_every_key() -> None:
    tree = read_yaml(DEFAULT_FILE)
    assert {path for path, _ in schema.paths()} <= set(tree.lines)


def test_configuration_page_names_every_refused_key() -> None:
    refused = [
        key for section in _sections(Settings) for key in section.unsupported_keys if key != "overflow"
    ]
    assert [key for key in refused if f"`{key}`" not in PAGE] == []


def test_examples_of_the_configuration_page_load(tmp_path: Path) -> None:
    for number, example in enumerate(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)):
        path = tmp_path / f"{number}.yaml"
        path.write_text(example, "utf-8")
        assert load_settings(path).queues


def _sections(section: type[schema.Section]) -> list[type[schema.Section]]:  # type: ignore[name-defined]
    inner = [key.section for key in schema.keys_of(section).values() if key.section]
    return [section] + [found for nested in inner for found in _sections(nested)]
