"""The connection between a method and the optimizer whose steps it follows."""

import gc
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet, ref

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from rvsm.provisional import mark
from rvsm.splitting.hooks import StepHooks, Watch, innermost, require_usable
from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import Named, look_up, parameters_of
from rvsm.splitting.notices import warn
from rvsm.splitting.ranks import ALONE
from rvsm.splitting.support import is_held, let_go
from rvsm.splitting.weights import require_trainable

if TYPE_CHECKING:
    from rvsm.splitting.method import Method

_attached: "WeakKeyDictionary[Optimizer, WeakSet[Method]]" = WeakKeyDictionary()


class Attachment:
    """Calls a method's ``before`` and ``after`` around each step of an optimizer, until it is removed.

    Names are fixed when a method is constructed, tensors are looked up here, and the optimizer's options are read at
    each step. All checks are made before anything changes.

    Args:
        method: the method that acts at each step.
        optimizer: the optimizer that updates the weights, or a wrapper around it.
        holds_zeros: whether the method itself holds zeros of the weights; if not, nothing else may hold any.

    """

    def __init__(self, method: "Method", optimizer: Optimizer, *, holds_zeros: bool) -> None:
        optimizer = innermost(optimizer)
        require_usable(optimizer)
        tensors = look_up(method.model, method.layers)
        group_of = {id(p): i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
        groups = {name: group_of[id(w)] for name, w in tensors.items() if id(w) in group_of and w.requires_grad}
        if not groups:
            raise ValueError(
                "the optimizer trains none of the weights to sparsify; build it from this model's parameters"
            )
        for name in groups:
            require_trainable(name, tensors[name])
        _require_alone({name: tensors[name] for name in groups})
        if not holds_zeros:
            _require_free({name: tensors[name] for name in groups})
        _require_one_group([replace(layer, parameter=tensors[layer.name]) for layer in method.layers])
        if method.budget is not None:
            trained = (layer for layer in method.layers if layer.name in groups)
            method.budget.check([replace(layer, parameter=tensors[layer.name]) for layer in trained])
        if left_out := [name for name in tensors if name not in groups]:
            warn(
                f"{len(left_out)} of the selected weights are frozen or not in the optimizer and stay unchanged:"
                f" {', '.join(left_out[:5])}{', …' if len(left_out) > 5 else ''}"
            )
        for layer in method.layers:
            layer.parameter, layer.param_group = tensors[layer.name], groups.get(layer.name)
            layer.dtype = layer.parameter.dtype
            if layer.attached:
                mark(layer.parameter, partial(_is_provisional, ref(method), ref(layer.parameter)))
        smallest = min(method.layers.attached, key=lambda layer: layer.parameter.numel())
        watch = Watch(smallest.name, smallest.parameter, type(optimizer).__name__, method.awaits_steps)
        self._hooks = StepHooks(optimizer, method.before, method.after, watch)
        self._method, self._last = ref(method), ref(optimizer)
        self._optimizer: Optimizer | None = optimizer  # until it is removed
        _attached.setdefault(optimizer, WeakSet()).add(method)

    @property
    def is_on(self) -> bool:
        """Whether it is still attached."""
        return self._optimizer is not None

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer, also after removal if it still exists: its momentum outlives the attachment."""
        return self._last()

    def remove(self) -> None:
        """Stop calling."""
        self._hooks.remove()
        if self._optimizer is not None and (method := self._method()) is not None:
            _attached[self._optimizer].discard(method)
        self._optimizer = None

    def options(self, layer: Layer) -> Mapping[str, Any]:
        """Return the optimizer's options for a layer; empty if the optimizer does not or no longer train it.

        Groups are identified by their index, since ``load_state_dict`` replaces the objects.
        """
        if self._optimizer is None or layer.param_group is None:
            return {}
        return self._optimizer.param_groups[layer.param_group]


def _is_provisional(method: "ref[Method]", parameter: "ref[Tensor]") -> bool:
    """Return whether a parameter has the weights w of a method, and not its sparse copy."""
    found, w = method(), parameter()
    return found is not None and w is not None and found.differs(w)


def release(model: nn.Module | Named) -> None:
    """Release a model's weights from all sparsifiers and held zeros.

    Use it if the sparsifier or the handle is no longer available. The sparsifiers that act on the model are released,
    and zeros held by a finalized sparsifier or by `keep_zeros` can become non-zero again. The weights do not change.
    """
    tensors = parameters_of(model).values()
    for method in _acting_on(tensors):
        method.release()
    let_go(tensors)


def _acting_on(tensors: Iterable[Tensor]) -> "list[Method]":
    """Return the methods that act on one of the tensors, through any optimizer."""
    wanted = {id(w) for w in tensors}
    attached = [method for methods in _attached.values() for method in methods]
    return [method for method in attached if any(id(layer.parameter) in wanted for layer in method.layers.attached)]


def _require_alone(tensors: Mapping[str, Tensor]) -> None:
    """Raise if another method acts on one of the tensors."""
    if not _acting_on(tensors.values()):
        return
    gc.collect()  # a method that went out of scope survives until then, in a reference cycle with its optimizer
    for other in _acting_on(tensors.values()):
        acted_on = {id(layer.parameter) for layer in other.layers.attached}
        shared = [name for name, w in tensors.items() if id(w) in acted_on]
        raise RuntimeError(
            f"an attached {other.name} already acts on {shared[0]!r}; detach() it, call rvsm.release(model), or give"
            " the two methods different layers with include=[...]"
        )


def _require_one_group(layers: Iterable[Layer]) -> None:
    """Raise if layers are divided among different processes, which could not agree on one threshold."""
    groups = {layer.name: layer.ranks.group for layer in layers if layer.ranks is not ALONE}
    processes = {name: dist.get_process_group_ranks(group) for name, group in groups.items()}
    first = next(iter(processes), "")
    for name, found in processes.items():
        if found != processes[first]:
            raise ValueError(
                f"{first!r} is divided among the processes {processes[first]} but {name!r} among {found}; give all"
                " sharded layers of a method the same mesh, or construct one method for each mesh with include=[...]"
            )


def _require_free(tensors: Mapping[str, Tensor]) -> None:
    """Raise if zeros of one of the tensors are held."""
    for name, w in tensors.items():
        if is_held(w):
            raise RuntimeError(
                f"zeros of {name!r} are held by an earlier method or by keep_zeros; before attaching a new one, call"
                " release() on the method, remove() on what keep_zeros returned, or rvsm.release(model)"
            )
