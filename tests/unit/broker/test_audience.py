"""broker.mqtt.publishing.topic_audience: who hears a publish, and how often."""

from types import SimpleNamespace

import pytest

from broker.mqtt.publishing.topic_audience import Audience
from broker.mqtt.topology.pubsub import PubSub
from broker.mqtt.topology.subscription import Subscription
from protocols.mqtt import constants as c
from protocols.mqtt.events import PublishRun, PublishShape


class Reader:
    """A subscriber; `heard` are the payloads it was given."""

    protocol_version = c.MQTT_5
    takes_rewritten = False
    has_room = True

    def __init__(self):
        self.heard = []

    def may_read(self, topic):
        return True

    def pass_on(self, run):
        self.heard += run.payloads

    def forward(self, run, subscription):
        self.heard += run.payloads


@pytest.mark.parametrize("version", [c.MQTT_5, c.MQTT_3_1_1], ids=["as it came", "rewritten"])
def test_of_repeated_publishes_that_came_together_one_is_heard(version):
    """Of several with one identity the queues take the first, and so do subscribers."""
    pubsub, reader = PubSub(), Reader()
    pubsub.subscribe(Subscription(reader, "t", 1))
    shape = PublishShape(0x32, "t", b"")
    hub = SimpleNamespace(client=SimpleNamespace(sessions=None, retained=None))
    audience = Audience(hub, pubsub, shape, protocol_version=version)
    audience.came(PublishRun(shape, 3, [1, 2, 3], [b"x"] * 3))
    audience.hear([b"x"])
    assert reader.heard == [b"x"]
