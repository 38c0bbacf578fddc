import gc
import os
import shutil
import signal
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

from rvsm import bfloat16

settings.register_profile("without timings", deadline=None)  # another process may need the core
settings.load_profile("without timings")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job that a shell started in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests interrupt themselves, and processes they start

if bfloat16.crashes():  # processes that are started later inherit the variable, and need not find out again
    os.environ.update([bfloat16.WITHOUT_AMX])
    bfloat16.crashes.cache_clear()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for tests in these files, but not for doctests: they have none, and helpers need not be imported."""
    return [found for found in (yield) if type(found) is pytest.Module]


def pytest_collection_finish() -> None:
    """Prepare a process that runs tests; torch is imported here, since the process that distributes them needs none."""
    import torch

    # The tests run on as many processes as there are cores: more threads in each would only wait for each other.
    torch.set_num_threads(1)
    # Modules and collected tests are exempt from garbage collection, which would walk through all of them every time.
    # What tests import later is not; a tenth of their time would go into collections that find next to nothing.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(autouse=True)
def seeded() -> None:
    import torch

    torch.default_generator.manual_seed(0)  # torch.manual_seed also notes a traceback for CUDA: milliseconds per test


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return what fills a folder once for all processes of the session: ``once("trained", fill)``.

    The first process that asks for the folder calls ``fill(folder)``; the others wait and get the folder as it is.
    They share it, so a test that changes something in it works on a copy.
    """
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def made(name: str, fill: Callable[[Path], object]) -> Path:
        folder, filled = shared / f"once-{name}", shared / f"once-{name}.filled"
        with FileLock(shared / f"once-{name}.lock"):
            if not filled.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a process that failed half-way
                folder.mkdir()
                fill(folder)
                filled.touch()
        return folder

    return made
