"""``verify``: the proof that nothing in the log was changed since it was appended."""

from __future__ import annotations

import click

from eventstore.adapters.cli import exits, output
from eventstore.adapters.cli.options import Options, options
from eventstore.log.audit import Bad, VerifyReport


@click.command()
@click.argument("stream", required=False)
@options
def verify(to: Options, stream: str | None) -> int:
    """Check that no event was changed.

    Checks every event of STREAM, or of the whole tenant, against its hash and chain. Exits 1 where something was
    changed, and names the first place.
    """
    with to.open() as store, output.bar("verifying") as bar:
        report = store.verify(
            stream, progress=lambda name, checked: bar.at(None, f"{output.events(checked)}, now {name}")
        )
        if not report.streams:
            output.note(f"no streams in tenant {store.tenant!r}")
    if to.json:
        output.say_json(document(report))
    else:
        tell(report)
    return 0 if report.ok else exits.NO


def document(report: VerifyReport) -> dict[str, object]:
    """Give a report as JSON values."""
    bad = report.first_bad
    return {
        "ok": report.ok,
        "checked": report.checked,
        "streams": report.streams,
        "first_bad": None if bad is None else bad._asdict(),
    }


def tell(report: VerifyReport) -> None:
    """Print a report in a line or two."""
    counts = f"{output.streams(report.streams)}, {output.events(report.checked)}, "
    bad = report.first_bad
    if bad is None:
        output.say(counts, ("ok", "bold green"))
        return
    output.say(counts, ("not ok", "bold red"))
    output.say(f"first bad: {place(bad)}")


def place(bad: Bad) -> str:
    """Say where and how an event is not what was appended."""
    return f"stream {output.line(bad.stream)}, version {bad.version}: {output.line(bad.reason)}"
