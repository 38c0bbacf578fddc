"""Forms: which sizes of an array are the channels, rows and columns of a map.

A form names the sizes of one image in the array's order, and a size that it does not name is 1. ``chw`` is a map,
``c`` a vector of features, ``cw`` a line of positions; ``hwc`` and ``wc`` are maps and lines with the channels
last, as linear layers have them. Inside of a program all values are maps: a form only matters where an array comes
in or goes out.
"""

from rvsm.runtime.operations import Shape

MAP = "chw"
FORMS = (MAP, "cw", "c", "hwc", "wc")


def channels_last(form: str) -> bool:
    """Say whether the channels of a position are neighbours, and not the positions of a channel."""
    return not form.startswith("c")


def sizes_of(form: str, shape: Shape) -> tuple[int, ...]:
    """Return the sizes of an array that holds a map of this shape.

    >>> sizes_of("wc", (8, 1, 5))
    (5, 8)
    """
    return tuple(shape[MAP.index(axis)] for axis in form)


def shape_of(form: str, sizes: tuple[int, ...]) -> Shape:
    """Return channels, height and width of an array of these sizes.

    >>> shape_of("wc", (5, 8))
    (8, 1, 5)
    """
    named = dict(zip(form, sizes, strict=True))
    return named["c"], named.get("h", 1), named.get("w", 1)


def form_of(sizes: tuple[int, ...], shape: Shape, *, like: str) -> str | None:
    """Return the form of an array that has a map's numbers in the order of the form ``like``, if there is one.

    >>> form_of((8, 5), (8, 1, 5), like="chw"), form_of((5, 8), (8, 1, 5), like="chw")
    ('cw', None)
    """
    single = shape[1:] == (1, 1)  # a map of one position has one order only
    alike = [form for form in FORMS if single or channels_last(form) == channels_last(like)]
    return next((form for form in alike if len(form) == len(sizes) and shape_of(form, sizes) == shape), None)


def check_form(form: object, shape: Shape, what: str) -> None:
    """Raise ValueError if there is no such form, or if a map of this shape cannot have it."""
    if not isinstance(form, str) or form not in FORMS:
        raise ValueError(f"the form of {what} must be one of {', '.join(FORMS)} but is {form!r:.20}")
    if shape_of(form, sizes_of(form, shape)) != shape:
        raise ValueError(
            f"{what} of shape {shape} cannot have the form {form!r}, which leaves sizes out that are not 1"
        )
