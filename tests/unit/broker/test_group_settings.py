"""broker.engine.group_settings: what is wrong with configured groups is told with its line, all at once."""

import pytest
from typer.testing import CliRunner

from broker.app import Broker
from broker.cli import app
from broker.engine.group_settings import problems_of
from config.queue_settings import GroupSettings, QueueSettings
from config.settings import ListenersSettings, MqttListenerSettings, Settings, StorageSettings
from config.settings_loader import check_file
from queue_manager.errors import InvalidArgument

FILE = """\
queues:
  - name: a
    groups:
      - {name: v, selector: "a ="}
      - name: w
        pattern: "#/a"
        start: nosuch
  - name: b
    typ: classic
    max_priority: 3
    groups: [{name: v, start: 5}, {name: w, start: latest}, {name: x, start: offset=7}, plain]
  - name: c
    type: stream
    groups: [{name: v, start: -1}, {name: w, start: 5, selector: "a = 1", pattern: "a/#"}]
  - name: d
    max_priority: many
    groups: [{name: v, start: 5, selector: 7, pattern: [a]}]
"""
OFFSETS = "a queue with priorities has offsets of each: begin at earliest, latest or a time"
TOLD = [
    "4: queues[0].groups[0].selector: column 4: found the end where a value or a name should be",
    "6: queues[0].groups[1].pattern: '#' must be the last level of '#/a'",
    "7: queues[0].groups[1].start: it is 'earliest', 'latest', an offset or 'timestamp=<ms since 1970>', not"
    " 'nosuch'",
    '9: queues[1].typ: unknown key (did you mean "type"?)',
    "11: queues[1].groups[0].start: " + OFFSETS,
    "11: queues[1].groups[2].start: " + OFFSETS,
    "14: queues[2].groups[0].start: it is 'earliest', 'latest', an offset or 'timestamp=<ms since 1970>', not"
    " -1",
    "16: queues[3].max_priority: must be a whole number",
    "17: queues[3].groups[0].pattern: must be text; put it in quotes",
    "17: queues[3].groups[0].selector: must be text; put it in quotes",
]


def test_every_problem_with_its_line(tmp_path):
    path = tmp_path / "broker.yaml"
    path.write_text(FILE)
    problems = check_file(path, {}, queue_check=problems_of)
    assert [problem.removeprefix(f"{path}:") for problem in problems] == TOLD


@pytest.mark.parametrize("command", [["config", "check"], ["serve", "--config"]])
def test_the_commands_tell_them_before_anything_starts(tmp_path, command):
    path = tmp_path / "broker.yaml"
    path.write_text(FILE)
    result = CliRunner().invoke(app, [*command, str(path)])
    assert result.exit_code == 2
    assert result.output.count(str(path)) == len(TOLD)


async def test_a_broker_made_in_python_says_which_group_it_is():
    wrong = QueueSettings(name="a", groups=(GroupSettings(name="v", selector="a ="),))
    settings = Settings(
        storage=StorageSettings(url="memory:"),
        listeners=ListenersSettings(mqtt=MqttListenerSettings(port=0)),
        queues=(wrong,),
    )
    with pytest.raises(InvalidArgument, match="queue 'a', group 'v': selector, column 4"):
        await Broker(settings).start()
