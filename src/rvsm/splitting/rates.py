"""Learning rates, as far as a pull depends on them."""


def require_no_overshoot(lr: float, beta: float, name: str) -> None:
    """Raise if one step of the pull would carry w past u."""
    if lr * beta >= 1:
        raise ValueError(
            f"learning rate × β must be < 1 but is {lr:.4g} × {beta:.4g} = {lr * beta:.4g} for {name!r}: the pull would"
            " carry the weights past their sparse copy; lower the learning rate or β (ρ of ADMM)"
        )


def total_pull(pull: float | None, steps: int) -> float:
    """Return the total pull Σηβ of a training: the one given, or 100, or a quarter of the steps if that is less.

    >>> total_pull(None, 1000), total_pull(None, 100), total_pull(30, 100)
    (100.0, 25.0, 30)
    """
    if pull is None:
        return min(100.0, steps / 4)
    if pull >= steps:
        raise ValueError(
            f"a total pull of {pull:g} needs more than {pull:g} steps but the training has {steps}; give more steps,"
            " or a smaller pull="
        )
    return pull


def lowered(beta: float | None, rate: float, lr: float) -> float | None:
    """Return β = rate/η₀ for the largest learning rate η₀ so far, given the present β and the present learning rate.

    So ηβ is at most ``rate``, which is the total pull divided by the number of steps, whatever the schedule.

    >>> lowered(None, 0.1, 0.0), lowered(None, 0.1, 0.5), lowered(0.2, 0.1, 0.25), lowered(0.2, 0.1, 1.0)
    (None, 0.2, 0.2, 0.1)
    """
    if lr <= 0:
        return beta
    return rate / lr if beta is None else min(beta, rate / lr)
