"""Learning rates, as far as a pull depends on them."""


def require_no_overshoot(lr: float, beta: float, name: str) -> None:
    """Raise if one step of the pull would carry w past u."""
    if lr * beta >= 1:
        raise ValueError(
            f"learning rate × β must be < 1 but is {lr:.4g} × {beta:.4g} = {lr * beta:.4g} for {name!r}: the pull would"
            " carry the weights past their sparse copy; lower the learning rate or β (ρ of ADMM)"
        )


def require_enough_steps(pull: float, steps: int) -> None:
    """Raise if a total pull would take more than the whole way in one step."""
    if pull >= steps:
        raise ValueError(
            f"a total pull of {pull:g} needs more than {pull:g} steps but the budget has {steps}; give more steps, or a"
            " smaller pull="
        )
