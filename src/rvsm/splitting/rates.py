"""Learning rates, as far as a pull depends on them."""

from torch.optim import Optimizer


def peak_learning_rates(optimizer: Optimizer) -> list[float]:
    """Return the largest learning rate that each parameter group is known to reach.

    Schedulers leave what they start from in "initial_lr" and, if they rise, in "max_lr"; a warm-up may have set "lr" to
    almost nothing by the time of the first step.
    """
    keys = ("lr", "initial_lr", "max_lr")
    return [max(float(group[key]) for key in keys if key in group) for group in optimizer.param_groups]


def relaxation(pull: float, peak: float, steps: int) -> float:
    """Return the β whose total pull η₀·β·steps is ``pull``."""
    if peak <= 0:
        raise ValueError(
            f"cannot set β from a total pull: the learning rate is {peak}; give beta=, or create the scheduler before"
            " the first step"
        )
    if steps <= pull:
        raise ValueError(
            f"a total pull of {pull:g} needs more than {pull:g} steps but the budget has {steps}; give more steps, or a"
            " smaller pull="
        )
    return pull / (peak * steps)


def require_no_overshoot(lr: float, beta: float, name: str) -> None:
    """Raise if one step of the pull would carry w past u."""
    if lr * beta >= 1:
        raise ValueError(
            f"learning rate × β must be < 1 but is {lr:.4g} × {beta:.4g} = {lr * beta:.4g} for {name!r}: the pull would"
            " carry the weights past their sparse copy; lower the learning rate or β (ρ of ADMM)"
        )
