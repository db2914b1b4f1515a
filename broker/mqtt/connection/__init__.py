"""An MQTT client, as the other parts see it: authentication, errors, calls that wait to be durable."""
