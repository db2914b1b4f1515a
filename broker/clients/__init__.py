"""The parts that both front-ends use for a client: login, consumers, claims, goodbye."""
