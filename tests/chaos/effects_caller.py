"""A process that runs effects until it is killed or done: ``effects_caller.py URL STREAM WORLD LEASE KEY…``.

Its tool acts in the world by one line in the file WORLD. With a line on standard input for each step it goes on: before
it acts, and after. With standard input closed it does not stop at all.
"""

from __future__ import annotations

import os
import sys

from eventstore import EventStore
from eventstore.errors import EffectIndeterminate, EffectPending


def step(name: str) -> None:
    """Say where it is, and wait to be told to go on."""
    os.write(1, name.encode() + b"\n")
    sys.stdin.readline()


def main(url: str, stream: str, path: str, lease: str, *keys: str) -> None:
    """Run one effect after the other."""
    world = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with EventStore.open(url, timeout=60) as store:
        effects = store.conversation(stream, context="ctx").effects
        for key in keys:

            def act(key: str = key) -> str:
                step("begun")
                os.write(world, key.encode() + b"\n")
                step("acted")
                return key

            try:
                effects.run("act", act, key=key, lease=float(lease))
            except (EffectPending, EffectIndeterminate) as e:
                os.write(1, type(e).__name__.encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
