"""Try a user's model before it is trained, and name the model in the errors that it raises."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from rvsm.models.user import blame
from rvsm.modes import modes_kept, random_state_kept
from rvsm.train.ranks import is_loss


@contextmanager
def blamed(model: str, failure: str) -> Iterator[None]:
    """Turn any error of a user's code into one that names the model, the failure, and the place in its file."""
    try:
        yield
    except Exception as error:
        if is_loss(error):  # batch norm waited for another process in vain
            raise
        raise ValueError(f"the model {model!r} {failure}: {blame(error)}") from error


def try_model(model: nn.Module, name: str, x: Tensor, classes: int) -> None:
    """Raise a clear error now if the model does not fit the images."""
    with (
        blamed(name, f"cannot take images of shape {list(x.shape[1:])}"),
        torch.no_grad(),
        random_state_kept(),
        modes_kept(model),
    ):
        scores = model.eval()(x[:2])
    expected = [len(x[:2]), classes]
    if not torch.is_tensor(scores) or list(scores.shape) != expected:
        got = list(scores.shape) if torch.is_tensor(scores) else type(scores).__name__
        raise ValueError(
            f"the model {name!r} must return scores of shape {expected} for {expected[0]} images of {expected[1]}"
            f" classes but returned {got}"
        )
