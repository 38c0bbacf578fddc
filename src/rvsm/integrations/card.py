"""The model card: what a model is, how it was made sparse, how good it is and how to run it."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from rvsm.metrics import sparsity

MARK = "<!-- written by rvsm -->"

_RUN = """\
```python
import rvsm.runtime  # needs numpy, safetensors and llvmlite, not PyTorch: pip install rvsm

program = rvsm.runtime.load("model.rvsm")
scores = program(inputs)  # NumPy arrays
```
"""
_TRANSFORMERS = """\
```python
from {module} import {model}

model = {model}.from_pretrained(".")  # the path of this folder, or its name on the Hub
```
"""
_TORCH = """\
```python
from safetensors.torch import load_model

model = ...  # construct the {model} in your own code, as for training
load_model(model, "model.safetensors")
```
"""
_KEEP = "To continue training without losing the zeros, call `rvsm.keep_zeros(model)`.\n"


@dataclass(frozen=True, kw_only=True)
class Card:
    """The contents of the card; mappings are by name."""

    model: nn.Module
    weights: Mapping[str, Tensor]  # those that are sparse
    figures: Mapping[str, float]  # accuracy and similar numbers
    method: str | None
    settings: Mapping[str, str]  # the options of the method
    unpacked: str | None  # why there is no packed form; None if there is one
    sizes: Mapping[str, int]  # of files, in bytes

    def __str__(self) -> str:
        return "\n".join([self._head(), self._facts(), self._how(), self._layers()])

    def _head(self) -> str:
        library = "transformers" if self._by_transformers else "pytorch"
        return (
            f"---\nlibrary_name: {library}\ntags:\n- rvsm\n- sparse\n- pruning\n---\n{MARK}\n\n"
            f"# {type(self.model).__name__}, {self._percentage:.2f} % zeros\n"
        )

    def _facts(self) -> str:
        parameters = list(self.model.parameters())
        count = sum(w.numel() for w in parameters)
        known = {
            "method": "not recorded" if self.method is None else f"`{self.method}`",
            **{name: f"`{value}`" for name, value in self.settings.items() if value != "None"},
            "zeros in the sparsified weights": f"{self._percentage:.2f} %",
            "zeros in all parameters": f"{100 * sparsity(parameters):.2f} % of {count:,}",
            **({name: f"{value:.4g}" for name, value in self.figures.items()} or {"accuracy": "not recorded"}),
            **{f"`{name}`": f"{size / 1e6:.2f} MB" for name, size in self.sizes.items()},
        }
        rows = "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in known.items())
        return f"| | |\n| --- | --- |\n{rows}\n\nFigures refer to the sparse model in this folder.\n"

    def _how(self) -> str:
        kind = type(self.model)
        template = _TRANSFORMERS if hasattr(kind, "from_pretrained") else _TORCH
        module = "transformers" if self._by_transformers else kind.__module__
        dense = template.format(model=kind.__name__, module=module)
        packed = _RUN if self.unpacked is None else f"There is no packed form: {self.unpacked}.\n"
        return f"## How to run it\n\nIn PyTorch:\n\n{dense}\n{_KEEP}\nWithout PyTorch, skipping the zeros:\n\n{packed}"

    def _layers(self) -> str:
        rows = "\n".join(
            f"| `{name}` | {' × '.join(map(str, w.shape))} | {100 * sparsity([w]):.2f} |"
            for name, w in self.weights.items()
        )
        return f"## Layers\n\n| weight | shape | zeros, % |\n| --- | --- | ---: |\n{rows}\n"

    @property
    def _percentage(self) -> float:
        return 100 * sparsity(self.weights.values())

    @property
    def _by_transformers(self) -> bool:
        return type(self.model).__module__.split(".")[0] == "transformers"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
