"""What holds for every data set of the registry."""

import dataclasses

import pytest

from rvsm.data import DATASETS


@pytest.mark.parametrize("name", DATASETS)
def test_options_are_fields_of_a_frozen_dataclass(name: str) -> None:
    kind = DATASETS[name]
    assert dataclasses.is_dataclass(kind)
    assert callable(kind.load)
    required = [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
    source = kind(**dict.fromkeys(required, "somewhere"))
    for field in dataclasses.fields(kind):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(source, field.name, 1)


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
def test_a_path_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="/no/such/place"):
        DATASETS[name](path="/no/such/place").load()
