"""Callbacks for trainers of other libraries, and folders for the Hugging Face Hub.

A name and the library that it needs are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rvsm.extras import needed_by

if TYPE_CHECKING:
    from rvsm.integrations.hub import save_pretrained as save_pretrained
    from rvsm.integrations.lightning import LightningCallback as LightningCallback
    from rvsm.integrations.transformers import TransformersCallback as TransformersCallback

_HOME = {
    "LightningCallback": ("rvsm.integrations.lightning", "lightning"),
    "TransformersCallback": ("rvsm.integrations.transformers", "transformers"),
    "save_pretrained": ("rvsm.integrations.hub", "torch"),
}
"""The module of each name, and the extra that installs what it imports."""

__all__ = sorted(_HOME)  # noqa: PLE0605 - one list of names, not two that drift apart


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'rvsm.integrations' has no attribute {name!r}; it has {', '.join(__all__)}")
    module, extra = _HOME[name]
    with needed_by(f"rvsm.integrations.{name}", extra=extra):
        return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
