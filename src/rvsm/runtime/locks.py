"""Locks that survive a fork: a child has no thread to release a lock that another thread of its parent held."""

import os
import threading
import weakref


class Lock:
    """A reentrant lock that is open in a forked child.

    Use it for data that is consistent at any moment, such as an attribute that is set once.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Fence(Lock):
    """A lock that a fork waits for, because the protected data is inconsistent while the lock is held."""

    def __init__(self) -> None:
        super().__init__()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self.__enter__, after_in_parent=self.__exit__)


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in tuple(_locks):
        lock._lock = threading.RLock()  # open, no matter which thread held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
