"""``python -m rvsm`` is ``rvsm``; torchrun starts a command in this way."""

import sys

from rvsm.cli import main

if __name__ == "__main__":
    sys.exit(main())
