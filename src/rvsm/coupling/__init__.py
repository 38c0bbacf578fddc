"""Find channels that span layers: sums, concatenations, depthwise convolutions and norms couple them."""

from rvsm.coupling.channels import Channels, find_channels

__all__ = ["Channels", "find_channels"]
