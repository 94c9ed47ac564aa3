"""Lint the SQL: it parses, a function stays readable, and what lost events once is not written again."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pglast import parse_plpgsql, parse_sql
from pglast.parser import ParseError

SQL = Path(__file__).parent.parent / "sql"
MAX_FUNCTION_LINES = 90
MAX_LINE = 132


def complaints(path: Path) -> Iterator[str]:
    """Yield what is wrong with one file."""
    text = path.read_text()
    lines = text.splitlines()
    if not lines or not lines[0].startswith("-- "):
        yield "begins with no comment that says what it is"
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            yield f"line {number} has {len(line)} characters, more than {MAX_LINE}"
        if line != line.rstrip():
            yield f"line {number} ends in blanks"
    try:
        statements = parse_sql(text)
    except ParseError as e:
        yield f"does not parse: {e}"
        return
    if re.search(r"\blast_value\b(?!\()", re.sub(r"--.*|pg_sequence_last_value", "", text)):
        yield "reads last_value of a sequence as a table: a dirty read; use pg_sequence_last_value()"
    if re.search(r"'[^'\n]*\\\\[^'\n]*'", re.sub(r"--.*", "", text)):
        yield "a backslash in a literal: what it means depends on standard_conforming_strings of the session"
    if path.parent.name != "functions":
        return
    kinds = [type(statement.stmt).__name__ for statement in statements]
    if kinds != ["CreateFunctionStmt"]:
        yield f"holds {kinds}; a file here holds one function"
    if len(lines) > MAX_FUNCTION_LINES:
        yield f"{len(lines)} lines; split it below {MAX_FUNCTION_LINES}"
    if not re.search(rf"FUNCTION {path.stem}\b", text):
        yield f"defines no function {path.stem}"
    definer = re.search(r"^LANGUAGE .*SECURITY DEFINER", text, re.MULTILINE)
    if definer and "SET search_path = pg_catalog, convstore, pg_temp" not in text:
        yield "SECURITY DEFINER without a search_path of its own"
    if re.search(r"LANGUAGE plpgsql", text):
        try:
            parse_plpgsql(text)
        except ParseError as e:
            yield f"its body does not parse: {e}"


def main() -> int:
    """Print the complaints; 1 where there are any."""
    found = [f"{path.relative_to(SQL)}: {text}" for path in sorted(SQL.rglob("*.sql")) for text in complaints(path)]
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
