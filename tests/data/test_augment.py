"""Each augmentation against one image at a time, in plain Python."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rvsm.data import Augmentation, Cutout, Flip, RandomCrop

ALL = [RandomCrop(padding=2), Flip(), Cutout(size=3)]


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _shifts(image: np.ndarray, padding: int) -> list[np.ndarray]:
    """Return all crops of one image, by numpy's own reflection."""
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)), mode="reflect")
    moves = range(2 * padding + 1)
    return [padded[:, y : y + height, x : x + width] for y in moves for x in moves]


@given(
    height=st.integers(2, 9),
    width=st.integers(2, 9),
    padding=st.integers(0, 4),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 2**32),
)
def test_crop_is_one_of_the_windows_of_the_reflected_image(
    height: int, width: int, padding: int, channels: int, seed: int
) -> None:
    padding = min(padding, height - 1, width - 1)
    batch = torch.randint(0, 256, (5, channels, height, width), dtype=torch.uint8)
    cropped = RandomCrop(padding=padding)(batch, _generator(seed))
    for before, after in zip(batch.numpy(), cropped.numpy(), strict=True):
        assert any(np.array_equal(after, crop) for crop in _shifts(before, padding))


def test_all_shifts_occur_equally_often() -> None:
    image = torch.arange(25.0).view(1, 1, 5, 5)
    cropped = RandomCrop(padding=1)(image.expand(9000, -1, -1, -1), _generator())
    crops = torch.from_numpy(np.stack(_shifts(image[0].numpy(), 1)))
    counts = torch.stack([(cropped == crop).flatten(1).all(1).sum() for crop in crops])
    assert int(counts.sum()) == 9000
    assert ((counts - 1000).abs() < 150).all()  # five standard deviations


def test_flip_mirrors_half_of_the_images() -> None:
    batch = torch.arange(2000 * 6).view(2000, 1, 2, 3)
    flipped = Flip()(batch, _generator())
    mirrored = (flipped == batch.flip(3)).flatten(1).all(1)
    kept = (flipped == batch).flatten(1).all(1)
    assert (mirrored ^ kept).all()
    assert abs(int(mirrored.sum()) - 1000) < 115


@pytest.mark.parametrize("size", [1, 3, 6])
def test_cutout_zeroes_one_square_in_all_channels_and_nothing_else(size: int) -> None:
    batch = torch.rand(300, 2, 6, 7) + 1
    cut = Cutout(size=size)(batch, _generator())
    zero = cut == 0
    assert zero[:, 0].equal(zero[:, 1])
    assert cut[~zero].equal(batch[~zero])
    assert (zero[:, 0].any(2).sum(1) == size).all()
    assert (zero[:, 0].any(1).sum(1) == size).all()
    assert (zero[:, 0].flatten(1).sum(1) == size * size).all()
    corners = {tuple(mask.nonzero()[0].tolist()) for mask in zero[:, 0]}
    assert len(corners) == (6 - size + 1) * (7 - size + 1)


@pytest.mark.parametrize("change", ALL, ids=repr)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
def test_keeps_type_shape_and_input_and_repeats_by_its_generator_alone(
    change: Augmentation, dtype: torch.dtype
) -> None:
    batch = torch.randint(1, 200, (8, 3, 6, 6)).to(dtype)
    before = batch.clone()
    state = torch.get_rng_state()
    after = change(batch, _generator(5))
    assert batch.equal(before)
    assert (after.dtype, after.shape) == (dtype, batch.shape)
    assert after.equal(change(batch, _generator(5)))
    assert not after.equal(change(batch, _generator(6)))
    assert torch.get_rng_state().equal(state)


@pytest.mark.parametrize("change", ALL, ids=repr)
def test_the_memory_layout_does_not_matter(change: Augmentation) -> None:
    batch = torch.rand(8, 3, 6, 6)
    last = batch.contiguous(memory_format=torch.channels_last)
    assert change(last, _generator(1)).equal(change(batch, _generator(1)))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: RandomCrop(padding=-1), "padding must be >= 0 but is -1"),
        (lambda: Cutout(size=0), "size of the cut must be >= 1 but is 0"),
        (lambda: RandomCrop(padding=4)(torch.zeros(1, 1, 4, 8), _generator()), "at most 3 pixels but padding is 4"),
        (lambda: Cutout(size=5)(torch.zeros(1, 1, 4, 8), _generator()), "5 pixels does not fit into an image of 4×8"),
    ],
)
def test_refused(act: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        act()
