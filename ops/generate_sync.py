"""Write the sync twin of each ``*_async.py``; with ``--check``, only tell whether they are current.

``unasync`` takes the awaits out and renames; two comments cover what differs: a line that ends in ``# async only`` is
left out, and ``# sync: code`` becomes code.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

ROOT = Path(__file__).parent.parent
PACKAGES = ("eventstore", "projections")
NAMES = {
    "AsyncArtifacts": "Artifacts",
    "AsyncBackground": "Background",
    "AsyncBatch": "Batch",
    "AsyncBell": "Bell",
    "AsyncBound": "Bound",
    "AsyncCaller": "Caller",
    "AsyncConnection": "Connection",
    "AsyncConnectionPool": "ConnectionPool",
    "AsyncConversation": "Conversation",
    "AsyncDeadline": "Deadline",
    "AsyncEffects": "Effects",
    "AsyncEventStore": "EventStore",
    "AsyncGuard": "Guard",
    "AsyncFactLog": "FactLog",
    "AsyncHandoffLog": "HandoffLog",
    "AsyncHints": "Hints",
    "AsyncPooled": "Pooled",
    "AsyncProjections": "Projections",
    "AsyncRawCursor": "RawCursor",
    "AsyncRetrying": "Retrying",
    "AsyncResponses": "Responses",
    "AsyncRoute": "Route",
    "AsyncRunner": "Runner",
    "AsyncScope": "Scope",
    "AsyncStream": "Stream",
    "AsyncTasks": "Tasks",
    "_AsyncAudit": "_Audit",
    "AsyncSubscription": "Subscription",
    "AbstractAsyncContextManager": "AbstractContextManager",
}


def sources() -> list[Path]:
    """List the async modules."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*_async.py"))


def twin(source: Path) -> str:
    """Return the text of a module's sync twin."""
    text = source.read_text()
    lines = [line for line in text.splitlines() if not line.endswith("# async only")]
    text = "\n".join(re.sub(r"^(\s*)# sync: ", r"\1", line) for line in lines) + "\n"
    renames = dict(NAMES)
    for word in set(re.findall(r"\b\w+_async\b", text)):
        renames[word] = word.removesuffix("_async")
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "_async" / source.name
        given.parent.mkdir()
        given.write_text(text)
        unasync.unasync_files([str(given)], [unasync.Rule("/_async/", "/_sync/", renames)])
        made = Path(folder) / "_sync" / source.name
        head = f"# Generated from {source.name} by ops/generate_sync.py: edit that one.\n"
        made.write_text(head + made.read_text())
        for command in (["check", "--select", "I,F401", "--fix", "--quiet"], ["format", "--quiet"]):
            config = ["--config", str(ROOT / "pyproject.toml")]
            subprocess.run([sys.executable, "-m", "ruff", *command, *config, str(made)], check=True)
        return made.read_text()


def main() -> int:
    """Write the twins, or compare them."""
    check = "--check" in sys.argv[1:]
    stale = []
    for source in sources():
        target = source.with_name(source.name.replace("_async.py", ".py"))
        text = twin(source)
        if target.exists() and target.read_text() == text:
            continue
        stale.append(str(target.relative_to(ROOT)))
        if not check:
            target.write_text(text)
    for name in stale:
        sys.stdout.write(f"{'stale' if check else 'written'}: {name}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
