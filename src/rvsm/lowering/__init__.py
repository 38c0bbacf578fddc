"""From torch modules to plans of the runtime: capture, translate, simplify, prune."""

from rvsm.lowering.compiler import compile
from rvsm.lowering.mixed import MixedProgram

__all__ = ["MixedProgram", "compile"]
