"""Programs of known parts, whatever the machine is doing: who is faster is measured where a test asks for it."""

import pytest

from rvsm.lowering import fallback


@pytest.fixture(autouse=True)
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never leave a network to PyTorch only because it was faster there."""
    monkeypatch.setattr(fallback, "_is_slower", lambda *given: False)
