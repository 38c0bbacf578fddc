"""Kernels: LLVM functions that receive the differences between layers as data, and their compiler."""
