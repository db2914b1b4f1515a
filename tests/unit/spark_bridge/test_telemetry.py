"""The command line of the telemetry pipeline."""

import pytest

pytest.importorskip("pyspark")

from spark_bridge.options import read_settings, write_settings
from spark_bridge.pipelines import telemetry
from spark_bridge.pipelines.alerts import Rule


def test_what_is_not_given_is_the_rules_default():
    args = telemetry.arguments(["run", "alerts", "--checkpoints", "s3a://bucket/ck"])
    assert telemetry.rule_of(args) == Rule()
    assert (args.queries, args.alerts, args.rejected, args.once) == (
        ["alerts"], "alerts", "telemetry-rejected", False,
    )  # fmt: skip


def test_a_rule_of_ones_own():
    given = ["--window", "5 minutes", "--delay", "1 hour", "--average-max", "7.5", "--count-min", "9"]
    for command in (["run", "alerts", "--checkpoints", "c"], ["recompute", "--out", "o"]):
        rule = telemetry.rule_of(telemetry.arguments([*command, *given]))
        assert rule == Rule("5 minutes", "1 hour", "7.5", "95", 9)


def test_the_broker_is_said_as_the_bridge_wants_it(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("pass word\n")
    given = ["--broker", "amqps://spark@broker:5999/", "--password-file", str(secret)]
    options = telemetry.connection_of(telemetry.arguments(["dead-letters", *given]))
    settings = read_settings({**options, "queue": "q"}, streaming=False)
    assert settings.connection == write_settings({**options, "queue": "q"}).connection
    connection = settings.connection
    assert (connection.host, connection.port, connection.tls) == ("broker", 5999, True)
    assert (connection.username, connection.password) == ("spark", "pass word")


@pytest.mark.parametrize(
    "given",
    [
        ["run", "--checkpoints", "c"],
        ["run", "alarms", "--checkpoints", "c"],
        ["run", "alerts"],
        ["run", "archive", "--checkpoints", "c"],
        ["recompute"],
    ],
)
def test_what_is_missing_is_told(given, capsys):
    with pytest.raises(SystemExit):
        telemetry.arguments(given)
    assert "error" in capsys.readouterr().err
