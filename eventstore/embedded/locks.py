"""Locks on files, by flock: the kernel frees them when their holder ends, however it ends.

A users' lock lives with its open file, so a forked child that inherits it is a user as well. All
other locks are taken off by hand, so that a child forked meanwhile does not hold them on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from eventstore.errors import EmbeddedUnavailable


def open_lock(path: Path) -> int:
    """The descriptor of a lock file, made where it is missing; a child program does not get it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def attempt(descriptor: int, kind: int) -> bool:
    """Take the lock if that is possible now."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def take(path: Path, kind: int, deadline: float, wanted: str) -> int:
    """Take the lock before ``deadline`` on the monotonic clock; its descriptor."""
    descriptor = open_lock(path)
    while not attempt(descriptor, kind):
        if time.monotonic() > deadline:
            os.close(descriptor)
            raise EmbeddedUnavailable(f"{wanted} took too long; another process holds {path}")
        time.sleep(0.01)
    return descriptor


@contextlib.contextmanager
def exclusive(path: Path, deadline: float, wanted: str) -> Iterator[None]:
    """Hold the lock alone for the length of the block."""
    descriptor = take(path, fcntl.LOCK_EX, deadline, wanted)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def held(path: Path) -> Literal["no", "shared", "exclusive"]:
    """How others hold the lock; makes no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return "no"
    try:
        if attempt(descriptor, fcntl.LOCK_EX):
            return "no"
        return "shared" if attempt(descriptor, fcntl.LOCK_SH) else "exclusive"
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def taken(path: Path) -> bool:
    """Whether somebody holds the lock exclusively; two that ask at once don't see each other."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not attempt(descriptor, fcntl.LOCK_SH)
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
