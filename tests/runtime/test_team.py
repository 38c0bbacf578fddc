"""Helpers: whatever happens to the caller, they have ended when it goes on."""

import signal
import threading
import time

import pytest

from rvsm.runtime.execute.team import Team


def interrupted(team: Team, *, in_native_code: bool) -> list[int]:
    """Run a task during which an interrupt comes, and return which helpers had ended when it was raised."""
    ended: list[int] = []

    def work(number: int) -> None:
        if number == 0:
            if in_native_code:
                raise KeyboardInterrupt
            return
        time.sleep(0.05)
        if not in_native_code:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(0.15)
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        team.run(work, 2)
    return list(ended)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals to threads")
@pytest.mark.parametrize("in_native_code", [True, False], ids=["in its own part", "while it waits"])
def test_an_interrupt_waits_for_the_helpers(in_native_code: bool) -> None:
    team = Team()
    assert interrupted(team, in_native_code=in_native_code) == [1]
    ended: list[int] = []

    def slow(number: int) -> None:
        time.sleep(0.1 * number)
        ended.append(number)

    team.run(slow, 3)
    assert ended == [0, 1, 2], "nothing of the interrupted task is left"
