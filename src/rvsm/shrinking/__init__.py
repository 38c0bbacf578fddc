"""Make a network smaller by the channels that its zeros leave without use."""

from rvsm.shrinking.shrink import shrink

__all__ = ["shrink"]
