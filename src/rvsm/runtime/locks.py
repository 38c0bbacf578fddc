"""Locks and forks: a child has no thread that could open a lock which another thread of its parent had closed."""

import os
import threading
import weakref


class Lock:
    """A lock that its holder may take again, and that is open in a forked child.

    It is for what is whole at any moment, such as an attribute that is set once.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Fence(Lock):
    """A lock that a fork waits for: what it protects may be in pieces until it is open, in the child for good."""

    def __init__(self) -> None:
        super().__init__()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self.__enter__, after_in_parent=self.__exit__)


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in tuple(_locks):
        lock._lock = threading.RLock()  # open, whoever had closed it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
