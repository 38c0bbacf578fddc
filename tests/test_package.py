"""The package as a whole: what an import costs, what is public."""

import subprocess
import sys

import pytest

import rvsm


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_importing_the_package_does_not_import_torch() -> None:
    assert run("import rvsm, sys; print(sorted({'torch', 'numpy', 'rich', 'sklearn'} & set(sys.modules)))") == "[]"


def test_a_command_without_its_files_and_a_table_import_neither_torch_nor_matplotlib() -> None:
    code = "import sys, rvsm.markdown; from rvsm.cli import main; print(main(['compare']), {})"
    assert run(code.format("sorted({'torch', 'matplotlib'} & set(sys.modules))")) == "1 []"


@pytest.mark.parametrize("name", rvsm.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    assert getattr(rvsm, name).__doc__
    assert name in dir(rvsm)


def test_names_are_listed_once_whether_they_have_been_used_or_not() -> None:
    assert rvsm.L0 is not None
    assert len(dir(rvsm)) == len(set(dir(rvsm)))
    assert run("import rvsm; print({'RVSM', 'metrics', 'runtime'} <= set(dir(rvsm)))") == "True"
