"""Trial inputs and the difference of results."""

from math import isnan, nan

import numpy as np
import pytest
import torch

from rvsm.example_inputs import difference, example_tuple, repeated, trial_inputs


def test_floats_are_random_and_whole_numbers_come_from_the_example() -> None:
    floats, numbers, truths = trial_inputs([torch.zeros(2, 3), torch.tensor([4, 7]), torch.tensor([True, False])], 5)
    assert floats.shape == (5, 3)
    assert floats.unique().numel() == 15
    assert numbers.tolist() == [4, 7, 4, 7, 4]
    assert truths.tolist() == [True, False, True, False, True]
    assert trial_inputs([torch.zeros(1, 2, dtype=torch.float64)], 3)[0].dtype == torch.float64


def test_rows_are_repeated_or_left_out() -> None:
    (x,) = repeated([torch.arange(6).reshape(3, 2)], 2)
    assert x.tolist() == [[0, 1], [2, 3]]


def test_results_in_any_form() -> None:
    expected = {"a": torch.tensor([1.0, -2.0]), "b": (torch.tensor([True]), None, torch.tensor([3]))}
    assert difference([np.array([1.0, -1.0], np.float32), torch.tensor([True]), np.array([3])], expected) == 0.5
    for found in ([nan, 1.0], [1.0, nan]):
        assert isnan(difference(found, [1.0, 1.0]))
    with pytest.raises(ValueError, match="zip"):
        difference([1.0], [1.0, 2.0])


def test_examples_are_batches_of_one_size() -> None:
    assert len(example_tuple([torch.zeros(2, 3), torch.zeros(2)])) == 2
    with pytest.raises(TypeError, match="must be a tensor, or a tuple of tensors, with the batch first"):
        example_tuple(torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"must have the same batch size, at least 1, but have \[2, 3\]"):
        example_tuple([torch.zeros(2), torch.zeros(3)])
