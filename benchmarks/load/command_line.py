"""Options and output every load module shares."""

import argparse
import json
from typing import Any

from benchmarks.load.target import Target


def add_target_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--amqp-port", type=int, default=5672)
    parser.add_argument("--mqtt-port", type=int, default=1883)
    parser.add_argument(
        "--pid", type=int, default=0, help="the broker's process, to report its CPU and memory"
    )
    parser.add_argument("--broker", default="broker", help="the name to report")


def target_from(given: argparse.Namespace) -> Target:
    return Target(given.broker, given.host, given.amqp_port, given.mqtt_port, given.pid)


def print_report(scenario: str, target: Target, report: dict[str, Any]) -> None:
    """One line of JSON on standard output."""
    print(json.dumps({"scenario": scenario, "broker": target.name, **report}))
