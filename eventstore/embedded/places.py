"""Where things are: the home folder, the folder of the socket, and the user who owns the cluster.

Postgres refuses to run as root. Then the server runs as ``postgres`` or ``nobody``, whichever
exists, and that user must be able to reach the home. We make folders of our own and never change
the mode of a folder above them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from eventstore.errors import EmbeddedUnavailable

PORT = 5432  # part of the socket's name; nothing listens on TCP
SOCKET_PATH_LIMIT = 107 if sys.platform == "linux" else 103  # bytes of sun_path without the closing NUL
ROOT_HOMES = (Path("/var/lib/convstore"), Path("/var/tmp/convstore-0"))  # noqa: S108


@dataclass(frozen=True)
class Account:
    """An existing user of the machine."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Home:
    """One home folder and the user whose server lives in it."""

    path: Path
    account: Account

    @property
    def data(self) -> Path:
        """The cluster."""
        return self.path / "data"

    @property
    def log(self) -> Path:
        """What postgres and its supervisor said."""
        return self.path / "log" / "postgres.log"

    @property
    def keep(self) -> Path:
        """The mark that keeps the server up without users."""
        return self.path / "keep"

    @property
    def unsynced(self) -> Path:
        """The mark that a server without fsync has run here."""
        return self.path / "unsynced"

    @property
    def users_lock(self) -> Path:
        """Held shared by every user, and exclusively by a supervisor that found none."""
        return self.path / "users.lock"

    @property
    def start_lock(self) -> Path:
        """Held by the one process that makes the cluster or waits for the server to come up."""
        return self.path / "start.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the supervisor, whose process id it contains."""
        return self.path / "supervisor.lock"


def find_home(given: Path | None) -> Home:
    """The home by argument, by ``CONVSTORE_HOME``, or by default; makes nothing."""
    named = given or os.environ.get("CONVSTORE_HOME") or None
    if named is not None:
        path = Path(named).expanduser().resolve()
        home = Home(path, account_of(path / "data"))
        refuse_blocked(home)
        return home
    default = platformdirs.user_data_path("convstore").resolve()
    if os.geteuid() != 0:
        return Home(default, account_of(default / "data"))
    for path in (default, *ROOT_HOMES):
        home = Home(path, account_of(path / "data"))
        if first_blocked(path, home.account) is None and ours_or_free(path):
            return home
    raise EmbeddedUnavailable(
        f"no folder for the embedded Postgres: user {home.account.name!r} can't reach {default}, "
        f"and {' and '.join(map(str, ROOT_HOMES))} can't be made or belong to others; "
        f"set CONVSTORE_HOME to a folder that {home.account.name!r} can reach"
    )


def account_of(data: Path) -> Account:
    """Who runs the server: we; under root the cluster's owner, ``postgres`` or ``nobody``."""
    if os.geteuid() != 0:
        return Account(str(os.geteuid()), os.geteuid(), os.getegid())
    try:
        found = data.stat()
    except OSError:
        found = None
    if found is not None and found.st_uid != 0:
        return Account(str(found.st_uid), found.st_uid, found.st_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedUnavailable(
        "Postgres does not run as root, and this machine has no user 'postgres' or 'nobody'; "
        "run as an ordinary user, or point CONVSTORE_URL at a Postgres server"
    )


def first_blocked(path: Path, account: Account) -> Path | None:
    """The first existing folder on the way to ``path`` that ``account`` may not search."""
    for folder in (*reversed(path.parents), path):
        try:
            found = folder.stat()
        except PermissionError:
            return folder.parent
        except OSError:
            return None  # missing; or a path that is refused where it is used
        if account.uid == found.st_uid:
            bit = stat.S_IXUSR
        elif account.gid == found.st_gid:
            bit = stat.S_IXGRP
        else:
            bit = stat.S_IXOTH
        if not found.st_mode & bit:
            return folder
    return None


def refuse_blocked(home: Home) -> None:
    """Say which folder is in the way of the server's user."""
    blocked = first_blocked(home.path, home.account)
    if blocked is None or os.geteuid() != 0:
        return
    raise EmbeddedUnavailable(
        f"the home {home.path} can't be used: under root the server runs as user "
        f"{home.account.name!r}, who may not search {blocked}; set CONVSTORE_HOME to a folder that "
        f"this user can reach, such as {ROOT_HOMES[0]}, or run as an ordinary user"
    )


def ours_or_free(path: Path) -> bool:
    """Whether root may use this folder: its own alone to write, or to be made where only root can.

    In somebody else's folder a link could make root write anywhere.
    """
    nearest = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    found = nearest.lstat()
    sticky = nearest != path and bool(found.st_mode & stat.S_ISVTX)
    closed = not found.st_mode & 0o022 or sticky
    return stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and closed and os.access(nearest, os.W_OK)


def make_home(home: Home) -> None:
    """Make the home and its log folder where they are missing."""
    mode = 0o755 if os.geteuid() == 0 else 0o700  # the server's user is another one only under root
    if not home.path.is_dir():
        home.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            home.path.mkdir(mode=mode)
            home.path.chmod(mode)  # whatever the umask took away
        except FileExistsError:
            if not home.path.is_dir():
                raise
    refuse_blocked(home)
    home.log.parent.mkdir(mode=0o700, exist_ok=True)


def socket_folder(home: Home) -> Path:
    """Make the socket's folder: in the home, or a short one where the home's path is too long."""
    inside = home.path / "socket"
    if fits(inside):
        return own_folder(inside, home.account)
    digest = hashlib.sha256(f"{home.account.uid}:{home.path}".encode(errors="surrogateescape")).hexdigest()
    tried = []
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108
        folder = Path(parent).resolve() / f"convstore-{digest[:12]}"
        if fits(folder) and first_blocked(folder, home.account) is None and os.access(folder.parent, os.W_OK):
            return own_folder(folder, home.account)
        tried.append(str(folder))
    raise EmbeddedUnavailable(
        f"the path of the server's socket is too long: in {inside} it would exceed the "
        f"{SOCKET_PATH_LIMIT} bytes that the system allows; {' and '.join(tried)} can't be used; "
        "set CONVSTORE_HOME to a shorter path"
    )


def fits(folder: Path) -> bool:
    """Whether kernel and libpq take the path of a socket in ``folder``; libpq splits at commas."""
    name = os.fsencode(folder / f".s.PGSQL.{PORT}")
    return len(name) <= SOCKET_PATH_LIMIT and b"," not in name


def own_folder(folder: Path, account: Account) -> Path:
    """Make a folder of mode 0700 for ``account``, or accept the one that is exactly that."""
    taken = (
        f"{folder} is not a folder of the server's user {account.name!r}; "
        "remove it, or set CONVSTORE_HOME to another folder"
    )
    # By descriptor: under /tmp a name may come to mean something else between two calls.
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (NotADirectoryError, PermissionError) as error:
        raise EmbeddedUnavailable(taken) from error
    try:
        owner = os.fstat(descriptor).st_uid
        if owner not in (account.uid, os.geteuid()):
            raise EmbeddedUnavailable(taken)
        if owner != account.uid:
            os.fchown(descriptor, account.uid, account.gid)
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
    return folder
