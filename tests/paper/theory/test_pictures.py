"""Every picture, drawn from its quick computation: labelled axes, and a legend for several kinds of lines."""

from collections.abc import Iterator
from functools import cache

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure as Canvas

from rvsm.paper.theory.pictures import PICTURES, hypotheses
from rvsm.paper.theory.pictures.plane import phase_portrait

ALL = [picture for pictures in PICTURES.values() for picture in pictures]


@pytest.fixture(scope="module", autouse=True)
def mapped_once() -> Iterator[None]:
    """Keep the map that a picture shows, for the test that compares the two."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(hypotheses, "angle_map", cache(hypotheses.angle_map))
        yield


@cache
def drawn(picture):
    """Return a picture and its canvas, computed once for all tests."""
    figure = picture(True)
    canvas = Canvas(figsize=figure.size)
    figure.draw(canvas)
    return figure, canvas


@pytest.mark.parametrize("picture", ALL, ids=lambda picture: picture.__name__)
def test_a_picture_can_be_read_on_its_own(picture) -> None:
    figure, canvas = drawn(picture)
    assert len(figure.caption) > 150
    plots = [axes for axes in canvas.axes if axes.get_label() != "<colorbar>"]
    assert any(axes.get_xlabel() for axes in plots)
    assert all(axes.get_xlabel() or axes.get_shared_x_axes().get_siblings(axes)[1:] for axes in plots)
    assert any(axes.get_ylabel() for axes in plots)
    for axes in plots:
        colours = {mpl.colors.to_hex(line.get_color()) for line in axes.lines if line.get_color() != "none"}
        told = axes.get_legend() or canvas.legends or any(other.get_legend() for other in plots)
        assert len(colours) <= 1 or told, f"{figure.name}: {len(colours)} kinds of lines without a legend"


def test_the_names_of_the_files_differ() -> None:
    names = [picture.__name__ for picture in ALL]
    assert len(set(names)) == len(names) == 12


def test_the_bound_is_drawn_above_the_error() -> None:
    from rvsm.paper.theory.pictures.convergence import error_against_beta, rate

    for picture, measured in ((error_against_beta, "‖w̄ − w*‖"), (rate, "measured")):
        _, canvas = drawn(picture)
        assert len(canvas.axes) == 3
        for axes in canvas.axes:
            lines = {line.get_label(): line.get_ydata() for line in axes.lines}
            (bound,) = (label for label in lines if label.startswith("bound"))
            assert (lines[measured] <= lines[bound] * (1 + 1e-6)).all()


def test_a_file_of_a_picture(tmp_path) -> None:
    png, pdf = drawn(phase_portrait)[0].save(tmp_path)
    assert 10_000 < png.stat().st_size < 300_000
    assert pdf.exists()


def test_the_cells_where_u_is_empty_are_hatched_and_no_others() -> None:
    from matplotlib.patches import Rectangle

    _, canvas = drawn(hypotheses.beta_and_start)
    hatched = [patch for patch in canvas.axes[0].patches if isinstance(patch, Rectangle) and patch.get_hatch()]
    empty = int((hypotheses.angle_map(multiples=5, margins=4, seeds=4, steps=200).empty > 0.5).sum())
    assert 0 < len(hatched) == empty < 10
