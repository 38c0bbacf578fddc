"""Translations of aten operations, by kind: each takes the place of the operation and its arguments."""
