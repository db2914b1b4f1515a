"""An MQTT client, as the other parts see it: authentication, errors, rates."""
