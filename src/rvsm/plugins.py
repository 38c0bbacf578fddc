"""Parts that the library finds by name but does not import: the entry points of installed distributions.

A distribution adds a method to ``rvsm train`` (group ``rvsm.methods``), a command to ``rvsm`` (``rvsm.commands``) or a
module to the package ``rvsm`` (``rvsm.modules``) with a line in its own ``pyproject.toml``::

    [project.entry-points."rvsm.methods"]
    mine = "my_package.my_module:MyMethod"

The package `rvsm.paper` is registered in the same way, so the library works without it.
"""

from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any


def plugins(group: str, *names: str) -> dict[str, Any]:
    """Return the objects of a group's entry points by name, all or some; entries whose module is missing are left out.

    >>> plugins("rvsm.nothing")
    {}
    """
    wanted = [point for point in entry_points(group=group) if not names or point.name in names]
    return {point.name: point.load() for point in wanted if _is_there(point)}


def _is_there(point: EntryPoint) -> bool:
    try:
        return find_spec(point.module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False
