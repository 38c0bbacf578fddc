"""What is computed: operations on numbered values, with their weights; no layouts, no addresses, no code."""

from rvsm.runtime.plan.operation import NOTHING, RELU, Activation, Operation, Shape
from rvsm.runtime.plan.operations import (
    AdaptivePooling,
    Concatenation,
    Convolution,
    Flattening,
    Pointwise,
    Pooling,
)
from rvsm.runtime.plan.plan import Output, Plan, Weights
from rvsm.runtime.plan.softmax import Softmax

__all__ = [
    "NOTHING",
    "RELU",
    "Activation",
    "AdaptivePooling",
    "Concatenation",
    "Convolution",
    "Flattening",
    "Operation",
    "Output",
    "Plan",
    "Pointwise",
    "Pooling",
    "Shape",
    "Softmax",
    "Weights",
]
