"""Data sets, one file each."""

from rvsm.data.digits import Split, digits

__all__ = ["Split", "digits"]
