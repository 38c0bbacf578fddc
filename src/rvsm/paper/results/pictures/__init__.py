"""The pictures of a collection, one module per kind; a picture with nothing to draw is left out."""

from rvsm.pages import Figure
from rvsm.paper.results.collections import Collection
from rvsm.paper.results.pictures.channels import channels
from rvsm.paper.results.pictures.flagship import flagship
from rvsm.paper.results.pictures.rows import layers, losses
from rvsm.paper.results.pictures.tradeoff import tradeoff
from rvsm.paper.results.printed import TABLES, is_of_the_paper


def pictures(collection: Collection) -> list[Figure]:
    """Return the pictures of the paper's tables, or of other networks."""
    if not is_of_the_paper(collection.experiments):
        return [figure for figure in (flagship(collection),) if figure is not None]
    drawn = [
        tradeoff(collection),
        *(losses(table, collection) for table in TABLES),
        *(layers(table, collection) for table in TABLES),
        channels(collection),
    ]
    return [figure for figure in drawn if figure is not None]


__all__ = ["pictures"]
