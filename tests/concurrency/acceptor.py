"""A process that accepts handoffs: ``acceptor.py URL STREAM BY ID...``.

It says ``ready``, waits for a line, accepts each id and prints its acknowledgement, or the field that forbids it. With
the line ``die`` it kills itself where the acceptance is written but not committed.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import psycopg

from eventstore import EventStore, errors


def main(url: str, stream: str, by: str, *ids: str) -> None:
    """Accept when told to."""
    with EventStore.open(url) as store:
        chat = store.conversation(stream)
        chat.head()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        if sys.stdin.readline().strip() == "die":
            with psycopg.connect(url) as conn:
                store.using(conn).conversation(stream).handoffs.accept(ids[0], by=by)
                os.kill(os.getpid(), signal.SIGKILL)
        for handoff_id in ids:
            try:
                ack = chat.handoffs.accept(handoff_id, by=by)
                line = {"ack_id": ack.ack_id, "deduplicated": ack.deduplicated, "version": ack.version}
            except errors.HandoffRefused as e:
                line = {"field": e.field}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
