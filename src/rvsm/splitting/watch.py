"""Notice at once that the optimizer which a method follows is not the one that trains the weights."""

import gc
import warnings
from collections.abc import Callable
from weakref import WeakMethod

import torch
from torch import Tensor


class Watch:
    """Looks at a parameter at each backward pass until it is removed, and warns when it has changed twice.

    A method that sees no steps does nothing, and nothing else would say so before the end of the training. Some
    optimizers step without ``step()``, and a loop may step another one.

    The hook lives as long as the parameter, so it knows the method weakly: one that is gone, or has done its work, as
    ``awaits_steps()`` says, waits for nothing.
    """

    def __init__(self, name: str, w: Tensor, optimizer: str, awaits_steps: Callable[[], bool]) -> None:
        self._name, self._optimizer = name, optimizer
        self._awaits_steps = WeakMethod(awaits_steps)
        self._seen: Tensor | None = None
        self._changes = 0
        self._handle = w.register_post_accumulate_grad_hook(self._look)  # type: ignore[no-untyped-call]

    def remove(self) -> None:
        """Look no longer."""
        self._handle.remove()
        self._seen = None

    @torch.no_grad()
    def _look(self, w: Tensor) -> None:
        if self._seen is not None and not torch.equal(self._seen, w):
            self._changes += 1
        self._seen = w.detach().clone()
        if self._changes < 2:
            return
        self.remove()
        gc.collect()  # a method that went out of scope lives on until then, in a circle with its optimizer
        if (awaits_steps := self._awaits_steps()) is not None and awaits_steps():
            warnings.warn(
                f"{self._name!r} has changed twice although the {self._optimizer} that was given to attach() has made"
                " no step, so nothing is made sparse; attach to the optimizer whose step() is called (of a wrapper,"
                " the one inside)",
                stacklevel=2,
            )
