"""Arguments that several classes share, written, typed and documented once: in the class above them.

The annotations of a class are the arguments of its constructor, as in a dataclass, after those of the classes that it
derives from. Its docstring gets what they say about theirs. So an editor, a type checker, ``inspect.signature``,
``help`` and the command line all know the whole list.
"""

import re
from dataclasses import dataclass, field, fields
from inspect import cleandoc
from typing import dataclass_transform


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
class Arguments:
    """Makes a dataclass of each class that derives from it, unless that has a constructor of its own.

    >>> class Sized(Arguments):
    ...     '''Has a size.
    ...
    ...     Args:
    ...         size: how large it is.
    ...
    ...     '''
    ...
    ...     size: int
    >>> class Coloured(Sized):
    ...     '''Has a colour.
    ...
    ...     Args:
    ...         colour: how it looks.
    ...
    ...     '''
    ...
    ...     colour: str = "red"
    >>> Coloured(size=3).colour
    'red'
    >>> print(Coloured.__doc__)
    Has a colour.
    <BLANKLINE>
    Args:
        size: how large it is.
        colour: how it looks.

    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        has_own = "__init__" in cls.__dict__
        dataclass(eq=False, repr=False, kw_only=True)(cls)
        if not has_own:
            cls.__doc__ = _documented(cls)


_SECTION = re.compile(r"^Args:\n((?:    .*\n?)+)", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+):.*\n?(?:     .*\n?)*", re.MULTILINE)
_NEXT = re.compile(r"^(Attributes|Example|Reference):", re.MULTILINE)


def _documented(cls: type) -> str:
    """Return the docstring of a class with the arguments of all classes above it, in the order of the constructor."""
    told: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if (section := _SECTION.search(cleandoc(each.__doc__ or ""))) is not None:
            told |= {entry[1]: f"{entry[0].rstrip()}\n" for entry in _ENTRY.finditer(section[1])}
    known = sorted(
        (each for each in fields(cls) if each.init and each.name in told), key=lambda each: bool(each.kw_only)
    )
    section_of_all = "Args:\n" + "".join(told[each.name] for each in known)
    own = cleandoc(cls.__doc__ or "")
    if (found := _SECTION.search(own)) is not None:
        return own[: found.start()] + section_of_all + own[found.end() :]
    following = _NEXT.search(own)
    place = len(own) if following is None else following.start()
    return f"{own[:place].rstrip()}\n\n{section_of_all}\n{own[place:]}".rstrip()
