"""Folders for the Hugging Face Hub: weights in dense shapes, the packed form, and a model card."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from pathlib import Path

from safetensors.torch import save_model
from torch import Tensor, nn

from rvsm.files import replacing, write_text
from rvsm.metrics import sparsity, zeros
from rvsm.modes import modes_kept
from rvsm.splitting import Method
from rvsm.splitting.naming import look_up
from rvsm.splitting.weights import unwrap

WEIGHTS, PACKED, CARD = "model.safetensors", "model.rvsm", "README.md"
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


def save_pretrained(
    model: nn.Module,
    folder: str | os.PathLike[str],
    *,
    sparsifier: Method | None = None,
    example_input: Tensor | Sequence[Tensor] | None = None,
    accuracy: float | Mapping[str, float] | None = None,
) -> Path:
    """Write a sparse model into a folder that is ready for upload, and return the folder.

    A Transformers model, or one with PyTorchModelHubMixin, is written by its own ``save_pretrained`` and read by its
    ``from_pretrained``. The weights of any other model are written as ``model.safetensors``. The shapes are dense and
    include the zeros. ``model.rvsm`` is the packed form for the runtime, and ``README.md`` is the model card.

    Args:
        model: the finalized model.
        folder: created if missing; if it has a README.md that was not written by this function, an error is raised.
        sparsifier: the method that made the model sparse, for the card.
        example_input: a batch, or a tuple of inputs, for packing; without it, the model is not packed. If the runtime
            does not support all operations of the model, a warning and the card say so.
        accuracy: a number for the card, or several numbers by name, measured on the sparse model.

    """
    target, model = Path(folder), unwrap(model)
    weights = _sparse_weights(model, sparsifier)
    figures = _figures(accuracy)
    card_path = target / CARD
    if card_path.exists() and MARK not in card_path.read_text(encoding="utf-8", errors="replace"):
        raise FileExistsError(f"{card_path} was not written by rvsm and is kept; move it, or choose another folder")
    target.mkdir(parents=True, exist_ok=True)
    if callable(save := getattr(model, "save_pretrained", None)):
        save(target)
    else:
        with replacing(target / WEIGHTS) as temporary:
            save_model(model, str(temporary), metadata={"format": "pt"})
    card = Card(
        model=model,
        weights=weights,
        figures=figures,
        method=None if sparsifier is None else sparsifier.name,
        settings=_settings(sparsifier),
        unpacked=_pack(model, example_input, target / PACKED),
        sizes={name: (target / name).stat().st_size for name in (WEIGHTS, PACKED) if (target / name).exists()},
    )
    write_text(str(card), card_path)
    return target


def _sparse_weights(model: nn.Module, sparsifier: Method | None) -> dict[str, Tensor]:
    """Return the sparse weights by their names in the model, which may be a part of the trained model."""
    names = {id(w): name for name, w in model.named_parameters()}
    if sparsifier is None:
        chosen: list[Tensor] = [w for w in model.parameters() if w.dim() > 1 and zeros(w.detach())]
    elif sparsifier.awaits_steps():
        raise ValueError("the sparsifier is not finalized, so the model is not sparse yet; call finalize() first")
    else:
        present = look_up(sparsifier.model, sparsifier.layers)
        chosen = list(present.values())
        if foreign := [name for name, w in present.items() if id(w) not in names]:
            raise ValueError(f"the sparsifier acts on another model: {foreign[0]!r} is not a weight of this one")
    if not any(zeros(w.detach()) for w in chosen):
        raise ValueError("the model has no zeros; call finalize() on its sparsifier before saving it")
    return {names[id(w)]: w for w in chosen}


def _settings(sparsifier: Method | None) -> dict[str, str]:
    """Return the options of the method, and the penalties it has used."""
    if sparsifier is None:
        return {}
    penalties = dict.fromkeys(type(layer.template).__name__ for layer in sparsifier.layers if layer.template)
    return {"penalty": ", ".join(penalties) or "None", **sparsifier.settings()}


def _figures(accuracy: float | Mapping[str, float] | None) -> dict[str, float]:
    named = accuracy if isinstance(accuracy, Mapping) else {} if accuracy is None else {"accuracy": accuracy}
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value):
            raise ValueError(f"accuracy must be a number, or numbers by name, but {name!r} is {value!r}")
    return {str(name): float(value) for name, value in named.items()}


def _pack(model: nn.Module, example_input: Tensor | Sequence[Tensor] | None, path: Path) -> str | None:
    """Write the packed form; if that is not possible, return the reason."""
    path.unlink(missing_ok=True)  # it may belong to earlier weights
    if example_input is None:
        return "no example input was given"
    from rvsm.lowering import compile

    with modes_kept(model):
        model.eval()
        try:
            compile(model, example_input).save(path)
        except ValueError as reason:
            warnings.warn(f"the model is saved without its packed form: {reason}", stacklevel=3)
            return str(reason)
    return None


@dataclass(frozen=True, kw_only=True)
class Card:
    """The model card: what a model is, how it was made sparse, how good it is and how to run it."""

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
