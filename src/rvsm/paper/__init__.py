"""All that exists because of one paper, Dinh & Xin's on the Relaxed Variable Splitting Method.

`theory` judges its statements, `results` its tables and claims, `published` has the methods of its authors' scripts.
The library does not need this room: it finds the methods and the commands by their entry points (`rvsm.plugins`).
"""
