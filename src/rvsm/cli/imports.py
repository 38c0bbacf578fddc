"""The option that allows a model of a user's own to be imported."""

import argparse


def add_allow_import(parser: argparse.ArgumentParser) -> None:
    """Add ``--allow-import module:callable``, which may be given several times."""
    parser.add_argument(
        "--allow-import",
        action="append",
        default=[],
        metavar="module:callable",
        help="a model that the folder or file may have imported, which runs its code; name it only if you trust it",
    )
