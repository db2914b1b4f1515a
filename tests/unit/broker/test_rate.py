"""broker.mqtt.connection.mqtt_client: a bucket that fills by the second."""

from broker.mqtt.connection.mqtt_client import Rate


def test_so_many_a_second_and_as_many_at_once():
    rate = Rate(8, 100.0)
    assert rate.take(8, 100.0)
    assert not rate.take(1, 100.0)
    assert not rate.take(2, 100.125)
    assert rate.take(1, 100.125)
    assert rate.take(8, 200.0), "no more than a second's worth is kept"
    assert not rate.take(1, 200.0)
