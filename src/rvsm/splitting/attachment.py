"""Weights of a model, and the optimizer whose steps a method follows."""

import gc
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rvsm.splitting.hooks import StepHooks, innermost, require_usable
from rvsm.splitting.layers import Layer, require_trainable
from rvsm.splitting.naming import Named, parameters_of, select, unwrap
from rvsm.splitting.support import let_go
from rvsm.splitting.untouched import warn_of_untouched
from rvsm.splitting.watch import Watch

_attached: "WeakKeyDictionary[Optimizer, WeakSet[Attachment]]" = WeakKeyDictionary()


class Attachment(ABC):
    """Acts on chosen weights around each step of an optimizer.

    Names are fixed at construction, tensors are looked up when attaching, and learning rates are read at each step.

    Attributes:
        layers: all selected weights.
        held: those of them that the optimizer trains.

    """

    name: ClassVar[str]

    def __init__(self, model: nn.Module | Named, include: Iterable[str] | None, exclude: Iterable[str] | None) -> None:
        self._given = model if isinstance(model, nn.Module) else None
        self._model = None if self._given is None else unwrap(self._given)
        unwanted = exclude if exclude is None or isinstance(exclude, str) else list(exclude)
        self.layers = select(model, include, unwanted)
        if self._model is not None and include is None:
            warn_of_untouched(self._model, self.layers, unwanted or ())
        self.held: list[Layer] = []
        self._optimizer: Optimizer | None = None
        self._last_optimizer: ReferenceType[Optimizer] | None = None  # its momentum outlives detach()
        self._hooks: StepHooks | None = None
        self._types: dict[str, tuple[Tensor, torch.dtype]] = {}  # of the parameters, when they were attached

    @abstractmethod
    def check(self, layers: Sequence[Layer]) -> None:
        """Raise if these layers cannot be acted on; nothing has been attached yet."""

    @abstractmethod
    def begin(self, optimizer: Optimizer, *, another: bool) -> None:
        """Take up the work where it is, now that there are weights; it may have been with another optimizer."""

    @abstractmethod
    def awaits_steps(self) -> bool:
        """Return whether there is something left to do at the optimizer's steps."""

    @abstractmethod
    def before(self, optimizer: Optimizer) -> None:
        """Act when the gradients are there."""

    @abstractmethod
    def after(self, optimizer: Optimizer) -> None:
        """Act when the step is done."""

    def attach(self, optimizer: Optimizer) -> Self:
        """Act at each step of ``optimizer`` from now on; schedulers and the training loop stay as they are.

        Of an optimizer that wraps another (Accelerate's, SAM) the steps of the one inside are followed.
        """
        if self._optimizer is not None:
            raise RuntimeError("already attached to an optimizer; call detach() first")
        optimizer = innermost(optimizer)
        require_usable(optimizer)
        tensors = self.look_up()
        group_of = {id(p): i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
        groups = {name: group_of[id(w)] for name, w in tensors.items() if id(w) in group_of and w.requires_grad}
        if not groups:
            raise ValueError(
                "the optimizer trains none of the weights to sparsify; build it from this model's parameters"
            )
        for name in groups:
            require_trainable(name, tensors[name])
        _require_alone({name: tensors[name] for name in groups})
        self.check([layer.at(tensors[layer.name]) for layer in self.layers if layer.name in groups])
        if left_out := [name for name in tensors if name not in groups]:
            warnings.warn(
                f"{len(left_out)} of the selected weights are frozen or not in the optimizer and stay as they are:"
                f" {', '.join(left_out[:5])}{', …' if len(left_out) > 5 else ''}",
                stacklevel=2,
            )
        for layer in self.layers:
            layer.parameter, layer.param_group = tensors[layer.name], groups.get(layer.name)
        self.held = [layer for layer in self.layers if layer.param_group is not None]
        self._types = {layer.name: (tensors[layer.name], tensors[layer.name].dtype) for layer in self.held}
        another = self._last_optimizer is not None and self._last_optimizer() is not optimizer
        self._optimizer, self._last_optimizer = optimizer, ref(optimizer)
        smallest = min(self._types, key=lambda name: tensors[name].numel())
        watch = Watch(smallest, tensors[smallest], type(optimizer).__name__, self.awaits_steps)
        self._hooks = StepHooks(optimizer, self.before, self.after, watch)
        _attached.setdefault(optimizer, WeakSet()).add(self)
        self.begin(optimizer, another=another)
        return self

    def detach(self) -> None:
        """Stop acting on the optimizer; the sparse copy can still be evaluated and finalized, and held zeros stay."""
        if self._hooks is not None:
            self._hooks.remove()
        if self._optimizer is not None:
            _attached[self._optimizer].discard(self)
        self._hooks = self._optimizer = None

    @abstractmethod
    def release(self) -> None:
        """Detach, and let go of all that is held."""

    @property
    def acting(self) -> list[Layer]:
        """The held layers that have had a gradient and are not frozen now; before the first step, all that may have."""
        free = [layer for layer in self.held if layer.parameter.requires_grad]
        return [layer for layer in free if layer.trained] or free

    def moving(self) -> list[tuple[Layer, float]]:
        """Return the layers that have a gradient, as optimizers do, with the learning rate of each."""
        return [(layer, self.learning_rate(layer)) for layer in self.held if layer.parameter.grad is not None]

    def require_types(self) -> None:
        """Raise if parameters have changed their type since they were attached, as ``model.half()`` makes them do."""
        for name, (w, kind) in self._types.items():
            if w.dtype != kind:
                was, now = (str(each).removeprefix("torch.") for each in (kind, w.dtype))
                raise RuntimeError(
                    f"{name!r} was {was} when the method was attached and is {now} now; convert the model back, or"
                    " before attaching; for speed use torch.autocast, and convert the finalized network"
                )

    def learning_rate(self, layer: Layer) -> float:
        """Return the present learning rate of a layer, 0 if it has none."""
        return float(self.group(layer).get("lr", 0.0))

    def group(self, layer: Layer) -> Mapping[str, Any]:
        """Return the optimizer's options for a layer, none if it has no part in it."""
        if self._optimizer is None or layer.param_group is None:
            return {}
        return self._optimizer.param_groups[layer.param_group]

    def look_up(self) -> dict[str, Tensor]:
        """Return the present tensors by name: a wrapper or a loaded checkpoint may have replaced them."""
        if self._model is None:
            return {layer.name: layer.parameter for layer in self.layers}
        parameters = parameters_of(self._model)
        for layer in self.layers:
            if layer.name not in parameters:
                raise ValueError(f"{layer.name!r} is no longer a parameter of the model; construct the method anew")
            if (shape := parameters[layer.name].shape) != layer.parameter.shape:
                raise ValueError(
                    f"{layer.name!r} had the shape {list(layer.parameter.shape)} and now has {list(shape)}; release()"
                    " this method and construct another for the model as it is"
                )
        return {layer.name: parameters[layer.name] for layer in self.layers}

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled, since its hooks live in an optimizer; construct"
            " another for the copied model, and carry the state over by state_dict()"
        )


def release(model: nn.Module | Named) -> None:
    """Let a model's weights go, whoever acts on them or holds their zeros.

    For when nobody has a handle any more: the sparsifiers that act on the model are released, and the zeros that a
    finalized one or `keep_zeros` holds may grow again. The weights stay as they are.
    """
    tensors = parameters_of(model).values()
    for method in _acting_on(tensors):
        method.release()
    let_go(tensors)


def _acting_on(tensors: Iterable[Tensor]) -> list[Attachment]:
    """Return the methods that act on one of the tensors, through whichever optimizer."""
    wanted = {id(w) for w in tensors}
    attached = [method for methods in _attached.values() for method in methods]
    return [method for method in attached if any(id(layer.parameter) in wanted for layer in method.held)]


def _require_alone(tensors: Mapping[str, Tensor]) -> None:
    """Raise if another method acts on one of the tensors."""
    if not _acting_on(tensors.values()):
        return
    gc.collect()  # a method that went out of scope lives on until then, in a circle with its optimizer
    for other in _acting_on(tensors.values()):
        acted_on = {id(layer.parameter) for layer in other.held}
        shared = [name for name, w in tensors.items() if id(w) in acted_on]
        raise RuntimeError(
            f"a {other.name} is already attached that acts on {shared[0]!r}; detach() it, call"
            " rvsm.release(model), or give the two methods different layers with include=[...]"
        )
