"""Folders for the Hugging Face Hub: weights in dense shapes, the packed form, and a model card."""

import os
import warnings
from collections.abc import Mapping, Sequence
from math import isfinite
from numbers import Real
from pathlib import Path

from safetensors.torch import save_model
from torch import Tensor, nn

from rvsm.files import replacing, write_text
from rvsm.integrations.card import MARK, Card
from rvsm.metrics import zeros
from rvsm.modes import modes_kept
from rvsm.splitting import Method
from rvsm.splitting.naming import look_up
from rvsm.splitting.weights import unwrap

WEIGHTS, PACKED, CARD = "model.safetensors", "model.rvsm", "README.md"


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
        settings={} if sparsifier is None else _settings(sparsifier),
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


def _settings(sparsifier: Method) -> dict[str, str]:
    """Return the options of the method, and the penalties it has used."""
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
