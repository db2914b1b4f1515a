"""`python -m broker`, and the `sluicemq` command."""

from __future__ import annotations

from broker.cli import app


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
