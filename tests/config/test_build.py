import pytest
import torch

from rvsm.config import build, read_config


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ('{"0.*": {"groups": 3}}', r"^\[method\] groups must be an object .* but is 3"),
        ('{"0.*": {"depth": 3}}', r"^\[method\] overrides: unknown option 'depth'"),
    ],
)
def test_options_that_a_method_refuses(overrides: str, message: str) -> None:
    config = read_config(flags=["--budget.sparsity", "0.9", "--method.overrides", overrides])
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match=message):
        build.method(config, model, 100, torch.zeros(1, 2))
