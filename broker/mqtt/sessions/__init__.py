"""Sessions that outlive their connection, as the MQTT front-end sees them."""
