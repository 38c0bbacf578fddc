"""Programs of known parts, whatever the machine is doing: who is faster is measured where a test asks for it."""

from collections.abc import Iterator
from typing import Any

import pytest
from torch.export import ExportedProgram

from rvsm.lowering import fallback


@pytest.fixture(autouse=True, scope="module")  # before the programs that a module shares
def unguarded() -> Iterator[None]:
    """Never leave a network to PyTorch only because it was faster there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fallback, "_is_slower", lambda *given: False)
        yield


@pytest.fixture
def decompositions(monkeypatch: pytest.MonkeyPatch) -> list[ExportedProgram]:
    """Return the list of the graphs that torch.export decomposes: tracing them a second time is most of the work."""
    seen: list[ExportedProgram] = []
    decompose = ExportedProgram.run_decompositions

    def noted(self: ExportedProgram, *given: Any) -> ExportedProgram:
        seen.append(self)
        return decompose(self, *given)

    monkeypatch.setattr(ExportedProgram, "run_decompositions", noted)
    return seen
