"""Paths that a user types."""

import argparse
from pathlib import Path


def path(text: str) -> Path:
    """Return a path; an empty text, as a variable that is not set leaves it, is not taken for the folder here."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path but got an empty text; the folder here is written .")
    return Path(text)
