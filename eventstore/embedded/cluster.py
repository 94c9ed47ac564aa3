"""The cluster: made in one step, and started with settings that keep what was committed.

``initdb`` works in a temporary folder beside the real one. The rename is the moment the cluster
exists, so a killed ``initdb`` leaves a folder for the next start to remove, never half a cluster.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from eventstore.embedded import supervise
from eventstore.embedded.binaries import Binaries, cluster_major
from eventstore.embedded.places import PORT, Home
from eventstore.errors import EmbeddedUnavailable

USER = "postgres"  # not the name of our schema, which "$user" in a search_path would put first
SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # What people say to agents stays out of the log: no statements, no values of keys.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}
ALL_TO_DISK = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
NOTHING_TO_DISK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def make_cluster(home: Home, binaries: Binaries, *, durable: bool) -> None:
    """Make the cluster where there is none; the caller holds the start lock."""
    for stale in (*home.path.glob("data.tmp-*"), *home.path.glob("bin.tmp-*")):
        shutil.rmtree(stale, ignore_errors=True)  # its initdb may still be dying; the next start tries again
    if cluster_major(home.data) is not None:
        return
    if home.data.exists() and any(home.data.iterdir()):
        raise EmbeddedUnavailable(
            f"{home.data} has files in it but is no Postgres cluster; "
            "move it away, or set CONVSTORE_HOME to another folder"
        )
    temporary = Path(tempfile.mkdtemp(prefix="data.tmp-", dir=home.path))
    if os.geteuid() == 0:
        os.chown(temporary, home.account.uid, home.account.gid)
    initdb = [
        *(str(binaries.folder / "initdb"), "-D", str(temporary), "-U", USER),
        *("--locale=C", "--encoding=UTF8", "--auth=trust", "--no-instructions"),
        *(() if durable else ("--no-sync",)),
    ]
    try:
        run_initdb(home, initdb)
    except EmbeddedUnavailable:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    temporary.rename(home.data)
    if durable:
        sync_folder(home.path)


def sync_cluster(home: Home, binaries: Binaries) -> None:
    """Bring to disk what a server without fsync left in memory, before one with fsync builds on it."""
    if home.unsynced.exists():
        run_initdb(home, [str(binaries.folder / "initdb"), "-D", str(home.data), "--sync-only"])
        home.unsynced.unlink()


def run_initdb(home: Home, initdb: list[str]) -> None:
    """Run initdb as the server's user; it ends when we do."""
    command = supervise.launch_command(supervise.__file__, initdb, home.account.uid, home.account.gid, signal.SIGTERM)
    ended = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        cwd=home.path,
        env=environment(),
    )
    if ended.returncode != 0:
        raise failure("initdb failed", ended.stdout.decode(errors="replace"), home)


def sync_folder(folder: Path) -> None:
    """Make a rename last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def postgres_command(
    home: Home, binaries: Binaries, socket: Path, *, durable: bool, settings: Mapping[str, str]
) -> list[str]:
    """The server's command line; ``settings`` come last and win."""
    quoted = '"' + str(socket).replace('"', '""') + '"'
    chosen = SETTINGS | (ALL_TO_DISK if durable else NOTHING_TO_DISK) | dict(settings)
    chosen["unix_socket_directories"] = quoted
    options = [part for name, value in chosen.items() for part in ("-c", f"{name}={value}")]
    return [str(binaries.folder / "postgres"), "-D", str(home.data), *options]


def environment() -> dict[str, str]:
    """Our environment without what would steer Postgres, such as PGDATA and PGOPTIONS."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def log_tail(home: Home, since: int = 0, lines: int = 15) -> str:
    """The last lines of the log, of what was written after ``since`` bytes."""
    try:
        text = home.log.read_bytes()
    except FileNotFoundError:
        return ""
    fresh = text[since:] if since <= len(text) else text
    return "\n".join(fresh.decode(errors="replace").splitlines()[-lines:])


def log_size(home: Home) -> int:
    """Bytes in the log now."""
    return home.log.stat().st_size if home.log.exists() else 0


def failure(what: str, said: str, home: Home) -> EmbeddedUnavailable:
    """The error for what initdb or postgres said, with the way out where the cause is known."""
    said = said.strip()
    if os.strerror(errno.ENOSPC) in said:
        reason = full_disk(home.path)
    elif "Permission denied" in said:
        reason = f"user {home.account.name!r} lacks a permission under {home.path}"
    elif "pre-existing shared memory block" in said:
        reason = f"processes of an earlier server still use {home.data}; end them and start again"
    else:
        reason = f"see {home.log}"
    shown = "\n".join(said.splitlines()[-15:])
    return EmbeddedUnavailable(f"{what}: {reason}" + (f"\n{shown}" if shown else ""))


def full_disk(folder: Path) -> str:
    """The sentence for a full disk."""
    return (
        f"the disk that holds {folder} is full; free some space (a new cluster takes about 60 MB), "
        "or set CONVSTORE_HOME to a folder on another disk"
    )


@contextlib.contextmanager
def explained(home: Home) -> Iterator[None]:
    """Turn the system's errors about our folders into sentences."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = full_disk(home.path)
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            reason = (
                f"no permission to write {error.filename or home.path} ({error.strerror}); "
                "set CONVSTORE_HOME to a folder that you own"
            )
        elif error.errno == errno.ENAMETOOLONG:
            reason = "the path is too long for the file system; set CONVSTORE_HOME to a shorter one"
        else:
            reason = str(error)
        raise EmbeddedUnavailable(f"the embedded Postgres can't use {home.path}: {reason}") from error
