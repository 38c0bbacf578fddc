"""The command line."""

import argparse
import sys

from rvsm import __version__


def main(arguments: list[str] | None = None) -> int:
    """Run ``rvsm`` with its arguments and return the exit code."""
    parser = argparse.ArgumentParser(prog="rvsm", description="Train sparse neural networks.")
    parser.add_argument("--version", action="version", version=f"rvsm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="compare five methods on embedded data, in about a minute")
    demo.add_argument("--seed", type=int, default=0, help="seed of the weights, the batches and the test split")
    options = parser.parse_args(arguments)
    try:
        from rich.console import Console

        from rvsm.demo import demo as run_demo

        run_demo(Console(), seed=options.seed)
    except ImportError as missing:
        print(f"rvsm: {missing}\nThe demo needs a few more packages: pip install 'rvsm[demo]'", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
