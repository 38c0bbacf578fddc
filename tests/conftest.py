import pytest
import torch

# The tests run on as many processes as there are cores: more threads in each would only wait for each other.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
