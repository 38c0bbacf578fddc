"""The kernels: LLVM functions that take everything that distinguishes layers as data.

A kernel is named by its variant, and all have the same signature: its arguments (64-bit slots), the arena with the
activations, the call, the chunk of images, and which of how many threads it is.
"""
