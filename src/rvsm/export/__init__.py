"""Finished networks for other engines."""

from rvsm.export.onnx import to_onnx

__all__ = ["to_onnx"]
