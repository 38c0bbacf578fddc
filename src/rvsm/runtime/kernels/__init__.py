"""Code: LLVM functions that take everything that distinguishes layers as data, and their compiler."""
