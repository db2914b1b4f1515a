"""Measures SluiceMQ, alone and beside other brokers: see README.md."""

import argparse


def command_line(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows a module's docstring as it is written."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
