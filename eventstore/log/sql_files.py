"""The SQL that ships with the package: numbered migrations, functions that are re-applied when changed, roles."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eventstore.errors import MigrationFailed, SchemaOutOfDate

_NAME = re.compile(r"^\d{4}_[a-z0-9_]+\.sql$")
_NO_TRANSACTION = re.compile(r"^-- no transaction\b", re.MULTILINE)
_BEFORE = re.compile(r"^-- before: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SqlFile:
    """One file. ``before`` undoes what a killed run of a file without transaction may have left."""

    name: str
    text: str
    transactional: bool = True
    before: str | None = None

    @property
    def checksum(self) -> str:
        """Digest of the content, line ends aside: a checkout may change those."""
        return hashlib.sha256(self.text.replace("\r\n", "\n").encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SqlFiles:
    """All files of one version of the package."""

    bootstrap: str
    migrations: tuple[SqlFile, ...]
    functions: tuple[SqlFile, ...]

    @property
    def version(self) -> int:
        """The schema version: the number of the newest migration."""
        return int(self.migrations[-1].name[:4]) if self.migrations else 0


@dataclass(frozen=True, slots=True)
class FileState:
    """One file and whether the database has it: ``applied``, ``pending``, ``changed``, ``edited`` or ``unknown``."""

    name: str
    state: str


def refuse_unfit(states: Sequence[FileState]) -> None:
    """Raise where a database can't be migrated by this code: it is newer, or an applied file was edited."""
    unknown = [s.name for s in states if s.state == "unknown"]
    if unknown:
        raise SchemaOutOfDate(
            f"the database has migrations that this code doesn't know: {', '.join(unknown)}; "
            "it was migrated by a newer convstore: upgrade this one"
        )
    edited = [s.name for s in states if s.state == "edited"]
    if edited:
        raise MigrationFailed(
            f"applied migrations were edited since: {', '.join(edited)}; "
            "restore the files and put the change into a new one"
        )


def folder() -> Path:
    """Find ``sql/``: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    shipped = package / "_sql"
    return shipped if shipped.is_dir() else package.parent / "sql"


def load(root: Path | None = None) -> SqlFiles:
    """Read the files below ``root``; raises ``ValueError`` where a migration's name or number is off."""
    root = root or folder()
    migrations = [_read(path) for path in sorted((root / "migrations").glob("*.sql"))]
    for index, file in enumerate(migrations):
        if not _NAME.match(file.name):
            raise ValueError(f"migration {file.name!r}: a name is NNNN_name.sql")
        if int(file.name[:4]) != index + 1:
            raise ValueError(f"migration {file.name!r}: its number should be {index + 1:04d}, they count without a gap")
    functions = [_read(path) for path in sorted((root / "functions").glob("*.sql"))]
    roles = root / "roles.sql"
    if roles.exists():
        functions.append(_read(roles))
    return SqlFiles((root / "bootstrap.sql").read_text(), tuple(migrations), tuple(functions))


def _read(path: Path) -> SqlFile:
    text = path.read_text()
    before = _BEFORE.search(text)
    return SqlFile(path.name, text, not _NO_TRANSACTION.search(text), before.group(1) if before else None)
