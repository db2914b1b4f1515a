"""MQTT 3.1.1 and 5, the server's side, on one port. `connection.MqttConnection` is the door."""
