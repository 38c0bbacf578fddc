"""Libraries that not everybody has."""

from collections.abc import Iterator
from contextlib import contextmanager

_EXTRAS = {
    "accelerate": "transformers",  # which its Trainer needs
    "lightning": "lightning",
    "llvmlite": "runtime",
    "safetensors": "runtime",
    "transformers": "transformers",
}


@contextmanager
def needed_by(name: str) -> Iterator[None]:
    """Say how to install what is missing.

    >>> with needed_by("LightningCallback"):
    ...     raise ModuleNotFoundError(name="lightning")
    Traceback (most recent call last):
    ImportError: rvsm.integrations.LightningCallback needs lightning, which is not installed: pip install 'rvsm[lightning]'
    """  # noqa: E501 - the line of a doctest
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        raise ImportError(
            f"rvsm.integrations.{name} needs {package}, which is not installed: pip install 'rvsm[{_EXTRAS[package]}]'",
            name=package,
        ) from missing
