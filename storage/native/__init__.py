"""Filling SlateDB's batches in C (`fill.c`).

`compiling.py` makes `_fill` of it, and of what is in C elsewhere, where a C compiler and Python's headers
are, called by `make setup` and by the build of the wheel. Where the module is not there, `storage.fast_batch`
does the same by cffi.
"""
