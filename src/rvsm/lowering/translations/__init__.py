"""Translations of aten operations, by kind."""
