"""Locks and forks: a child has no thread that could open a lock which another thread of its parent had closed."""

import os
import threading
import weakref
from types import TracebackType


class Lock:
    """A lock that its holder may take again, and that is open in a forked child.

    It is for what is whole at any moment, such as an attribute that is set once.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Open it, whoever has closed it."""
        self._lock = threading.RLock()


class Fence(Lock):
    """A lock that a fork waits for: what it protects may be in pieces until it is open, in the child for good."""

    def __init__(self) -> None:
        super().__init__()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._lock_now, after_in_parent=self._unlock)

    def _lock_now(self) -> None:
        self._lock.acquire()

    def _unlock(self) -> None:
        self._lock.release()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in tuple(_locks):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
