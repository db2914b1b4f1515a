"""Secrets in the settings are shown to nobody who looks at them."""

from config.access_settings import UserSettings
from config.bridge_settings import BridgeSettings, BridgeTopicSettings


def test_the_password_of_a_bridge_is_shown_to_nobody():
    topic = BridgeTopicSettings(topic="a/#", qos=1)
    bridge = BridgeSettings(name="b", address="other:1883", password="s3cret", out_topics=(topic,))
    assert bridge.password == "s3cret"
    assert "s3cret" not in repr(bridge)
    assert bridge.model_dump(mode="json")["password"] == "***"


def test_the_hashes_of_a_user_are_in_no_repr():
    user = UserSettings(name="a", password="$argon2id$v=19$hash")
    assert "hash" not in repr(user)
