"""What the runtime pays for: the time of each layer as a function of its zeros, measured, kept in a file, predicted.

`rvsm.timing.measure` needs the runtime and torch.export, so it is imported where it is used.
"""

from rvsm.timing.curves import Curve
from rvsm.timing.profile import LayerTimes, Profile

__all__ = ["Curve", "LayerTimes", "Profile"]
