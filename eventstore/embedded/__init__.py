"""A Postgres of our own, for who has none: started on first use, gone with its last user.

Every process that uses the server holds a shared lock on ``<home>/users.lock``; the kernel drops
that lock when the process ends, however it ends. A supervisor waits for the exclusive lock and then
stops the server. Nothing listens on TCP: the only way in is a socket in a folder of mode 0700.
"""

import sys

from eventstore.errors import EmbeddedUnavailable

if sys.platform == "win32":
    raise EmbeddedUnavailable(
        "the embedded Postgres needs Linux or macOS, this is Windows; "
        "point CONVSTORE_URL at a Postgres server, or use WSL"
    )

from eventstore.embedded.server import Server, Status, down, start, status, up

__all__ = ["EmbeddedUnavailable", "Server", "Status", "down", "start", "status", "up"]
