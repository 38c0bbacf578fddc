"""What a reader can ask of a plot."""

import json
import re

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas

from rvsm.pages import Key
from rvsm.pages.drawing import readings
from rvsm.pages.keys import columns, gid, height


def test_lines_and_stairs_with_a_label_answer() -> None:
    canvas = Canvas(figsize=(4, 3))
    left, right = canvas.subplots(1, 2)
    left.plot([1, 2, 3], [0.123456789, np.nan, 5], label="line", gid=gid(7))
    left.plot([1, 2], [3, 4])
    left.plot([1, 3, 2], [3, 4, 5], label="a path in the plane")
    left.plot(np.arange(1001), np.arange(1001), label="too long")
    left.axhline(2, label="a level")
    left.set(xlabel="epoch", title="Loss", xlim=(0, 4), ylim=(0, 8))
    right.stairs([4, 5], [1, 10, 100], label="counts")
    right.set(xscale="log", xlim=(1, 100))
    right.set_gid(gid(2))
    first, second = readings(canvas)
    assert [one["name"] for one in first["series"]] == ["line"]
    assert first["series"][0] == {
        "name": "line",
        "run": "7",
        "colour": "#1f77b4",
        "x": [1, 3],
        "y": [0.12346, 5],
    }
    assert (first["title"], first["across"], first["x"], first["y"]) == ("Loss", "epoch", [0, 4, False], [0, 8, False])
    assert (second["x"], second["series"][0]["run"]) == ([1, 100, True], "2"), "as the panel's"
    assert second["series"][0]["x"] == pytest.approx([10**0.5, 10**1.5], rel=1e-4), "the middle of a bin on this axis"
    json.dumps([first, second], allow_nan=False)


def test_panels_that_share_an_axis_share_its_label() -> None:
    canvas = Canvas()
    upper, lower = canvas.subplots(2, 1, sharex=True)
    upper.plot([0, 1], [1, 2], label="a")
    lower.set_xlabel("epoch")
    (panel,) = readings(canvas)
    assert panel["across"] == "epoch"


def test_a_plot_without_labels_has_nothing_to_say() -> None:
    canvas = Canvas()
    canvas.subplots().plot([0, 1], [1, 2])
    assert readings(canvas) == []


@pytest.mark.parametrize("marker", ["", *"osD^vPX*<>"])
def test_a_swatch_is_a_small_drawing(marker: str) -> None:
    drawn = Key("x", "C6", "-.", marker).swatch
    assert drawn.count("<path") == 1 + bool(marker)
    assert "var(--ink)" in drawn
    numbers = [float(number) for number in re.findall(r"[\d.]+(?= |L|Z)", drawn.partition("M1 6H25")[2])]
    assert all(0 <= number <= 26 for number in numbers)


def test_a_drawn_legend_has_room_for_its_names() -> None:
    short, long = [Key("a", "C0")] * 6, [Key("a rather long name of a run, as they are", "C0")] * 6
    assert columns(short, 8.5) == 6
    assert columns(long, 8.5) == 2
    assert columns(long, 2.0) == 1
    assert height([], 8.5) == 0
    assert height(long, 8.5) == pytest.approx(3 * height(short, 8.5))
    endless = [Key("n" * 400, "C0")]
    assert columns(endless, 8.5) == 1
    assert height(endless, 8.5) == pytest.approx(3 * height(short, 8.5)), "three lines of it are shown"
