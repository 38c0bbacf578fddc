"""Arguments that several classes share, written, typed and documented once, in their common base class.

The annotations of a class are the arguments of its constructor, as in a dataclass, after those of its base classes. Its
docstring also gets the descriptions of the inherited arguments. Thus editors, type checkers, ``inspect.signature``,
``help`` and the command line all know the complete list.
"""

import re
from dataclasses import dataclass, field
from inspect import cleandoc, signature
from typing import dataclass_transform


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
class Arguments:
    """Turns each subclass into a dataclass, unless it defines its own constructor."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        has_own = "__init__" in cls.__dict__
        dataclass(eq=False, repr=False, kw_only=True)(cls)
        if not has_own:
            cls.__doc__ = _documented(cls)


_SECTION = re.compile(r"^Args:\n((?:    .*\n?)+)", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+):.*\n?(?:     .*\n?)*", re.MULTILINE)
_NEXT = re.compile(r"^(?=(Attributes|Example|Reference):)", re.MULTILINE)


def _documented(cls: type) -> str:
    """Return the docstring of a class with the arguments of all its base classes, in the order of the constructor."""
    entries: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if (section := _SECTION.search(cleandoc(each.__doc__ or ""))) is not None:
            entries |= {entry[1]: f"{entry[0].rstrip()}\n" for entry in _ENTRY.finditer(section[1])}
    arguments = "Args:\n" + "".join(entries[name] for name in signature(cls).parameters if name in entries)
    own = cleandoc(cls.__doc__ or "")
    found = _SECTION.search(own) or _NEXT.search(own)  # the class's own section, or the place for it
    begin, end = (len(own), len(own)) if found is None else (found.start(), found.end())
    return f"{own[:begin].rstrip()}\n\n{arguments}\n{own[end:].lstrip()}".rstrip()
