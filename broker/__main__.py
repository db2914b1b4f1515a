"""`python -m broker` in the repository; the command line of `python -m sluicemq` and `sluicemq`."""

from __future__ import annotations

from broker.cli import app


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
