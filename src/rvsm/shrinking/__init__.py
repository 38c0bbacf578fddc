"""Make a network smaller by removing the channels that its zeros leave unused."""

from rvsm.shrinking.shrink import shrink

__all__ = ["shrink"]
