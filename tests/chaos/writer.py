"""A process that appends without end and notes what was acknowledged: ``writer.py URL NAME FILE``.

It appends by turns one item and three, to a stream of its own and to one that all writers share, and writes a line to
FILE for each append that was acknowledged. It ends when its input does.
"""

from __future__ import annotations

import json
import os
import select
import sys
from itertools import count

from eventstore import EventStore


def main(url: str, name: str, path: str) -> None:
    """Append until told to stop."""
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with EventStore.open(url, timeout=60) as store:
        chats = [store.conversation(name), store.conversation("shared")]
        for n in count():
            chat = chats[n % 2]
            size = 3 if n % 4 > 1 else 1
            items = [[name, n, part, size] for part in range(size)]
            result = chat.append(items, key=f"{name} {n}" if n % 3 else None)
            line = {"stream": chat.name, "first": result.first_version, "last": result.last_version, "items": items}
            os.write(notes, json.dumps(line).encode() + b"\n")
            if select.select([0], [], [], 0)[0]:
                return


if __name__ == "__main__":
    main(*sys.argv[1:4])
