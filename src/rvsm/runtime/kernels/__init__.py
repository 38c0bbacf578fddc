"""Code: LLVM functions that take everything that distinguishes layers as data, and their compiler.

A kernel is a ``Variant``: a name, operands and code. All have the same signature: the row of their operands, the arena
with the activations, the call, the chunk of images, and which of how many threads it is.
"""
