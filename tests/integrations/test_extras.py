"""Libraries that are not installed, and those that nobody asked for."""

import subprocess
import sys

import pytest

import rvsm.integrations

WITHOUT = """
import sys
sys.modules[{library!r}] = None  # as Python marks what cannot be imported
import rvsm
try:
    rvsm.integrations.{name}
except ImportError as problem:
    print(problem)
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(
    ("name", "library"), [("LightningCallback", "lightning"), ("TransformersCallback", "transformers")]
)
def test_a_missing_library_is_a_sentence_with_the_command(name: str, library: str) -> None:
    assert run(WITHOUT.format(name=name, library=library)) == (
        f"rvsm.integrations.{name} needs {library}, which is not installed: pip install 'rvsm[{library}]'"
    )


def test_no_library_is_imported_before_it_is_needed() -> None:
    code = (
        "import rvsm, sys; rvsm.integrations.save_pretrained; print({'lightning', 'transformers'} & set(sys.modules))"
    )
    assert run(code) == "set()"


def test_unknown_names_are_told_with_the_known_ones() -> None:
    with pytest.raises(AttributeError, match="it has LightningCallback, TransformersCallback, save_pretrained"):
        _ = rvsm.integrations.KerasCallback
    assert "LightningCallback" in dir(rvsm.integrations)
