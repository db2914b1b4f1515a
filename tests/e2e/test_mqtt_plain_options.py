"""User properties that only mean something on `$queue/...` are refused on other topics, not ignored."""

import pytest

pytestmark = pytest.mark.extension


@pytest.mark.parametrize(
    "option",
    [
        ("selector", "region = 'eu'"),
        ("x-jms-selector", "region = 'eu'"),
        ("x-group-selector", "region ="),
        ("x-application-properties-filter", '{"region": "eu"}'),
        ("consumer-group", "workers"),
        ("x-stream-offset", "first"),
        ("x-priority", "3"),
        ("exclusive", "true"),
        ("prefetch", "5"),
        ("ack", "explicit"),
        ("auto-commit", "false"),
    ],
)
@pytest.mark.parametrize("share", ["", "$share/workers/"])
def test_queue_option_on_a_plain_topic_is_refused(mqtt, name, option, share):
    assert mqtt().subscribe(f"{share}plain/{name}", user=[("trace-id", "7"), option]) == 0x83


def test_unknown_user_properties_of_a_subscription_are_ignored(mqtt, name):
    client = mqtt()
    client.subscribe(f"plain/{name}", user=[("trace-id", "7"), ("Selector", "?")])
    client.publish(f"plain/{name}", "tea")
    assert client.take_one().payload == b"tea"
