"""The names of the integrations: those of one library do not import another."""

import pytest

import rvsm.integrations
from commands import run_code
from processes import Ended, Process


def test_no_library_is_imported_before_it_is_needed() -> None:
    code = (
        "import rvsm, sys; rvsm.integrations.save_pretrained; print({'lightning', 'transformers'} & set(sys.modules))"
    )
    assert Process(run_code, code).ended() == Ended(0, "set()\n")


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(AttributeError, match="it has LightningCallback, TransformersCallback, save_pretrained"):
        _ = rvsm.integrations.KerasCallback
    assert "LightningCallback" in dir(rvsm.integrations)
