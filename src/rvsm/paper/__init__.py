"""Everything that is specific to one paper, Dinh & Xin's on the Relaxed Variable Splitting Method.

`theory` judges its statements, `results` its tables and claims, `published` has the methods of its authors' scripts.
The library does not depend on this package. It finds the methods and commands by their entry points (`rvsm.plugins`).
"""
