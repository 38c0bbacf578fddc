"""Train sparse neural networks by the Relaxed Variable Splitting Method.

The public names are loaded when they are first used, so that ``import rvsm`` is instant and does not import torch.
Where torch is not installed, `rvsm.runtime` works, and any other name is an ImportError with the command to install it.

>>> import rvsm
>>> rvsm.L0(lam=0.02).threshold(step=1.0)
0.2
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rvsm.groups import Block as Block
    from rvsm.groups import Channel as Channel
    from rvsm.groups import Column as Column
    from rvsm.groups import Coupled as Coupled
    from rvsm.groups import Element as Element
    from rvsm.groups import Filter as Filter
    from rvsm.groups import Row as Row
    from rvsm.lowering import compile as compile
    from rvsm.penalties import L0 as L0
    from rvsm.penalties import L1 as L1
    from rvsm.penalties import MCP as MCP
    from rvsm.penalties import SCAD as SCAD
    from rvsm.penalties import Grouped as Grouped
    from rvsm.penalties import LHalf as LHalf
    from rvsm.penalties import LogSum as LogSum
    from rvsm.penalties import TransformedL1 as TransformedL1
    from rvsm.shrinking import shrink as shrink
    from rvsm.splitting import ACDC as ACDC
    from rvsm.splitting import ADMM as ADMM
    from rvsm.splitting import RVSM as RVSM
    from rvsm.splitting import Budget as Budget
    from rvsm.splitting import Magnitude as Magnitude
    from rvsm.splitting import ProxSGD as ProxSGD
    from rvsm.splitting import keep_zeros as keep_zeros
    from rvsm.splitting import profile as profile
    from rvsm.splitting import recalibrate as recalibrate
    from rvsm.splitting import release as release
    from rvsm.timing import Profile as Profile

__version__ = "0.1.0"

_HOME = {
    "rvsm.groups": "Block Channel Column Coupled Element Filter Row",
    "rvsm.lowering": "compile",
    "rvsm.penalties": "L0 L1 MCP SCAD Grouped LHalf LogSum TransformedL1",
    "rvsm.shrinking": "shrink",
    "rvsm.splitting": "ACDC ADMM RVSM Budget Magnitude ProxSGD keep_zeros profile recalibrate release",
    "rvsm.timing": "Profile",
}
_EXTRAS = {
    None: "integrations runtime",
    "torch": "bench export groups metrics models penalties splitting",
    "train": "data train",
    "sweep": "sweep",
}
_MODULES = {module: extra for extra, modules in _EXTRAS.items() for module in modules.split()}
"""The extra that brings what each module imports."""
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - one list of names, not two that drift apart


def __getattr__(name: str) -> object:
    from rvsm.extras import needed_by

    with needed_by(f"rvsm.{name}", extra=_MODULES.get(name, "torch")):
        if name in _MODULES:
            return import_module(f"rvsm.{name}")
        value = getattr(import_module(_MODULE_OF[name]), name) if name in _MODULE_OF else _plugin(name)
    globals()[name] = value
    return value


def _plugin(name: str) -> object:
    """Return a module that a distribution adds, such as `rvsm.theory`; see `rvsm.plugins`."""
    if not name.startswith("_"):
        from rvsm.plugins import plugins

        if (module := plugins("rvsm.modules", name).get(name)) is not None:
            return module
    raise AttributeError(f"module 'rvsm' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
