"""The command line."""

import argparse
import sys
from pathlib import Path

from rvsm import __version__


def main(arguments: list[str] | None = None) -> int:
    """Run ``rvsm`` with its arguments and return the exit code."""
    parser = argparse.ArgumentParser(prog="rvsm", description="Train sparse neural networks.")
    parser.add_argument("--version", action="version", version=f"rvsm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo", help="compare seven trainings of a small network on embedded data, in half a minute"
    )
    demo.add_argument("--seed", type=int, default=0, help="seed of the weights, the batches and the test split")
    theory = commands.add_parser(
        "theory",
        help="judge every statement of the paper, with pictures and a page",
        description="Run the paper's theorem: a verdict on every statement, verdicts.json, pictures and theory.html."
        " Exits with 1 if a verdict differs from the one on record.",
    )
    theory.add_argument(
        "statements", nargs="*", metavar="STATEMENT", help="judge only these (no pictures); all if none"
    )
    theory.add_argument("--quick", action="store_true", help="a smaller sweep, in a quarter of the time")
    theory.add_argument(
        "--out", type=Path, default=Path("theory"), help="the folder to write to (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    try:
        return _demo(options) if options.command == "demo" else _theory(options)
    except ModuleNotFoundError as missing:
        extra = f"pip install 'rvsm[{options.command}]'"
        print(f"rvsm: {options.command} needs {missing.name}, which is not installed: {extra}", file=sys.stderr)
    except (ValueError, OSError) as error:
        print(f"rvsm: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


def _demo(options: argparse.Namespace) -> int:
    from rich.console import Console

    from rvsm.demo import demo

    demo(Console(), seed=options.seed)
    return 0


def _theory(options: argparse.Namespace) -> int:
    from rich.console import Console

    from rvsm.theory.laboratory import laboratory

    expected = laboratory(options.statements, quick=options.quick, out=options.out, console=Console())
    return 0 if expected else 1


if __name__ == "__main__":
    sys.exit(main())
