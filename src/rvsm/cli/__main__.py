"""``python -m rvsm.cli`` is ``rvsm``."""

import sys

from rvsm.cli import main

if __name__ == "__main__":
    sys.exit(main())
