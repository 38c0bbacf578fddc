"""Call a method around the steps of an optimizer, through the optimizer's own hooks.

Schedulers, parameter groups, checkpoints and user code still see the real optimizer.
"""

import gc
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any
from weakref import WeakMethod

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer

from rvsm.splitting.shards import local


class StepHooks:
    """Calls ``before(optimizer)`` once the gradients are available, and ``after(optimizer)`` once the step is done.

    The first step ends the watch for steps that are made by other code.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        before: Callable[[Optimizer], None],
        after: Callable[[Optimizer], None],
        watch: "Watch",
    ) -> None:
        self._before, self._after, self._watch = before, after, watch
        self._skipped = False
        self._handles = [
            optimizer.register_step_pre_hook(self._pre),
            optimizer.register_step_post_hook(self._post),
        ]

    def remove(self) -> None:
        """Stop calling."""
        self._watch.remove()
        for handle in self._handles:
            handle.remove()

    def _pre(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if _is_nested(optimizer, sys._getframe(1)):
            return None
        self._watch.remove()
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._act(optimizer)
            return None
        wrapped = self._wrapped(closure, optimizer)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": wrapped}
        return (args[0], wrapped, *args[2:]), kwargs

    def _wrapped(self, closure: Callable[[], Any], optimizer: Optimizer) -> Callable[[], Any]:
        """Wrap a closure so that the method acts after it has computed the gradients."""
        evaluations = 0

        def evaluate() -> Any:
            nonlocal evaluations
            evaluations += 1
            if evaluations > 1:
                raise RuntimeError(
                    f"{type(optimizer).__name__} evaluates its closure more than once per step, and a pull in between"
                    " would change the function; use an optimizer that evaluates it once, such as SGD or AdamW"
                )
            loss = closure()
            self._act(optimizer)
            return loss

        return evaluate

    @torch.no_grad()
    def _act(self, optimizer: Optimizer) -> None:
        # GradScaler calls a fused optimizer even after an overflow, and lets the optimizer skip the step itself.
        overflow = getattr(optimizer, "found_inf", None)
        self._skipped = overflow is not None and bool(overflow)
        if not self._skipped:
            self._before(optimizer)

    def _post(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not self._skipped and not _is_nested(optimizer, sys._getframe(1)):
            with torch.no_grad():
                self._after(optimizer)


class Watch:
    """Checks a parameter at each backward pass until it is removed, and warns when the parameter has changed twice.

    A method that sees no steps does nothing, and without this check the user would not notice until the end of
    training. Some optimizers make steps without ``step()``, and a training loop may use another optimizer.

    The hook lives as long as the parameter, so it refers to the method weakly. There is no warning if the method no
    longer exists, or is finished according to ``awaits_steps()``.
    """

    def __init__(self, name: str, w: Tensor, optimizer: str, awaits_steps: Callable[[], bool]) -> None:
        self._name, self._optimizer = name, optimizer
        self._awaits_steps = WeakMethod(awaits_steps)
        self._seen: Tensor | None = None
        self._changes = 0
        self._handle = w.register_post_accumulate_grad_hook(self._look)  # type: ignore[no-untyped-call]

    def remove(self) -> None:
        """Stop watching."""
        self._handle.remove()
        self._seen = None

    @torch.no_grad()
    def _look(self, w: Tensor) -> None:
        here = local(w).detach()
        if self._seen is not None and not torch.equal(self._seen, here):
            self._changes += 1
        self._seen = here.clone()
        if self._changes < 2:
            return
        self.remove()
        gc.collect()  # a method that went out of scope survives until then, in a reference cycle with its optimizer
        if (awaits_steps := self._awaits_steps()) is not None and awaits_steps():
            warnings.warn(
                f"{self._name!r} has changed twice although the {self._optimizer} that was passed to attach() has made"
                " no step, so nothing becomes sparse; attach to the optimizer whose step() is called (for a wrapper,"
                " the inner optimizer)",
                stacklevel=2,
            )


def _is_nested(optimizer: Optimizer, wrapper: FrameType) -> bool:
    """Return whether a step is part of another one of the same optimizer.

    Torch wraps the ``step`` of each class in a function that calls the hooks. If a subclass calls ``super().step()``,
    they are therefore called twice in one step, and only the outer call counts. The stack is inspected because a
    counter would stay wrong after a step that raised.
    """
    outer = wrapper.f_back
    while outer is not None:
        if outer.f_code is wrapper.f_code and outer.f_locals.get("self") is optimizer:
            return True
        outer = outer.f_back
    return False


def innermost(optimizer: Any) -> Any:
    """Return the innermost optimizer of a wrapper, whose step updates the weights.

    Accelerate stores it as ``optimizer``. SAM stores it as ``base_optimizer`` and steps it without calling its own
    ``step``, or in the middle of that, when the weights are not w.
    """
    for name in ("optimizer", "base_optimizer"):
        if isinstance(inner := getattr(optimizer, name, None), Optimizer) and inner is not optimizer:
            return innermost(inner)
    return optimizer


def require_usable(optimizer: object) -> None:
    """Raise unless the object is an optimizer whose steps a method can follow."""
    if not isinstance(optimizer, Optimizer) or not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise TypeError(
            "expected a torch.optim.Optimizer, or a wrapper that has one as .optimizer or .base_optimizer, but got"
            f" {type(optimizer).__name__}"
        )
    if isinstance(optimizer, LBFGS):
        raise TypeError(
            "LBFGS evaluates its closure several times per step, and a pull in between would break its line search;"
            " use an optimizer that evaluates it once, such as SGD or AdamW"
        )


def gradient_scale(optimizer: Optimizer) -> float:
    """Return the factor by which a GradScaler has multiplied the gradients that a fused optimizer will unscale."""
    scale = getattr(optimizer, "grad_scale", None)
    return 1.0 if scale is None else float(scale)
