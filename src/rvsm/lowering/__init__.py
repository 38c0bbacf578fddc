"""From torch modules to plans of the runtime: capture, translate, simplify, prune."""

from rvsm.lowering.compiler import compile, removed_channels
from rvsm.lowering.fallback import MixedProgram

__all__ = ["MixedProgram", "compile", "removed_channels"]
