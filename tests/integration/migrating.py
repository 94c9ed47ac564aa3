"""SQL folders to migrate from, and migrators in processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import eventstore
from eventstore.log import sql_files
from eventstore.log.sql_files import SqlFiles

REPOSITORY = Path(eventstore.__file__).parent.parent

CHILD = """
import json, sys
from pathlib import Path
from eventstore.log import sql_files
from eventstore.log.schema import migrate
files = sql_files.load(Path(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(migrate(sys.argv[1], files, timeout=60)), flush=True)
"""


class Folder:
    """A copy of ``sql/`` with more migrations in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(sql_files.folder(), root)

    def add(self, text: str, name: str = "more") -> str:
        """Add a migration and return its name."""
        number = len(list((self.root / "migrations").glob("*.sql"))) + 1
        path = self.root / "migrations" / f"{number:04d}_{name}.sql"
        path.write_text(f"-- For a test.\n{text}\n")
        return path.name

    def files(self) -> SqlFiles:
        return sql_files.load(self.root)


class Migrator:
    """A process that loads everything, says so, and migrates when told to."""

    def __init__(self, url: str, root: Path) -> None:
        path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, url, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=90)
        return self.process.returncode, out, err
