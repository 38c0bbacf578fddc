"""Checks on processes that train one model, mostly a sharded one; test_sharded.py reads what each of them reports."""
