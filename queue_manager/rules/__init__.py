"""What a queue may be told to do beyond passing messages on: expiry, limits, dead letters, schedules ..."""
