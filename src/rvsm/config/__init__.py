"""Configurations: frozen dataclasses ↔ TOML ↔ command line."""

from rvsm.config.config import Choice, Config, differences
from rvsm.config.reading import as_toml, config_of, described, help_of, read_config
from rvsm.config.settings import split
from rvsm.config.training import Augment, Training

__all__ = [
    "Augment",
    "Choice",
    "Config",
    "Training",
    "as_toml",
    "config_of",
    "described",
    "differences",
    "help_of",
    "read_config",
    "split",
]
