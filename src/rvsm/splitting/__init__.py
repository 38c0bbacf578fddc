"""Methods that make a network sparse while it trains, one file each.

To add a method, write a file with a subclass of `Method` and add a line to `METHODS`.
"""

from rvsm.plugins import plugins
from rvsm.splitting.acdc import ACDC
from rvsm.splitting.admm import ADMM
from rvsm.splitting.attachment import release
from rvsm.splitting.budget import Budget
from rvsm.splitting.magnitude import Magnitude
from rvsm.splitting.method import Method
from rvsm.splitting.profiling import profile
from rvsm.splitting.proxsgd import ProxSGD
from rvsm.splitting.recalibrate import recalibrate
from rvsm.splitting.rvsm import RVSM
from rvsm.splitting.support import Support, keep_zeros

METHODS: dict[str, type[Method]] = {
    "rvsm": RVSM,
    "admm": ADMM,
    "proxsgd": ProxSGD,
    "magnitude": Magnitude,
    "acdc": ACDC,
}


def methods() -> dict[str, type[Method]]:
    """Return the methods by name: those above, then those of other installed distributions."""
    return METHODS | {name: method for name, method in plugins("rvsm.methods").items() if name not in METHODS}


__all__ = [
    "ACDC",
    "ADMM",
    "METHODS",
    "RVSM",
    "Budget",
    "Magnitude",
    "Method",
    "ProxSGD",
    "Support",
    "keep_zeros",
    "methods",
    "profile",
    "recalibrate",
    "release",
]
