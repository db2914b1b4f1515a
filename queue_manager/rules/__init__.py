"""Rules of a queue beyond passing messages on: expiry, limits, dead letters, schedules ..."""
