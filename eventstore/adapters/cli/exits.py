"""How a command ends: 0 done, 1 the answer is no, 2 wrong use or bad input, 3 the store can't be reached.

130 is an interrupt and 141 a reader that went away, as shells know them; 70 is an error of the program itself, the only
one that shows a traceback.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from typing import Any, NoReturn

import click
import psycopg
from pydantic import ValidationError

from eventstore.adapters.cli import hints
from eventstore.adapters.cli.output import line
from eventstore.errors import ConvstoreError, EmbeddedUnavailable, StoreUnavailable

NO, WRONG, UNREACHABLE, DEFECT, INTERRUPTED, READER_GONE = 1, 2, 3, 70, 130, 141
_LONGEST = 1000
_RUN = re.compile(r"run: convstore (migrate|repair sequence)\b")


class Commands(click.Group):
    """A group whose commands return their exit code, None for 0; errors are told in a line or two."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and leave with the code that fits how it ended."""
        # Whatever the locale: what can't be written is written out.
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        # The command tells why it failed; the pool would say so too, once for each attempt.
        logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as e:
            where = e.ctx.command_path if e.ctx else ctx.command_path
            leave(ctx, WRONG, f"{e.format_message()}\nTry: {where} --help")
        except (ConvstoreError, ValidationError, psycopg.Error) as e:
            code, text = told(e)
            leave(ctx, code, _RUN.sub(lambda found: f"run: {hints.again(ctx, found[1])}", text), e)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit complains
            ctx.exit(READER_GONE)
        except OSError as e:
            leave(ctx, WRONG, f"{e.filename or 'standard output'}: {e.strerror}", e)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception:  # noqa: BLE001 - 1 would claim an answer
            traceback.print_exc()
            leave(ctx, DEFECT, "this is a defect of convstore: please report it")
        ctx.exit(code or 0)


def leave(ctx: click.Context, code: int, text: str, e: BaseException | None = None) -> NoReturn:
    """Tell why on standard error, with the notes of the error, and exit."""
    for index, each in enumerate([*text.split("\n"), *getattr(e, "__notes__", [])]):
        shown = line(each)
        if len(shown) > _LONGEST:
            shown = f"{shown[: _LONGEST // 2]} … {shown[-_LONGEST // 2 :]}"
        sys.stderr.write(("convstore: " if index == 0 else "  ") + shown + "\n")
    ctx.exit(code)


def told(e: ConvstoreError | ValidationError | psycopg.Error) -> tuple[int, str]:
    """Give the exit code of an error, and its text in one line."""
    if isinstance(e, ValidationError):  # only settings are checked so: the rest has errors of its own
        wrong = e.errors()[0]
        return WRONG, f"CONVSTORE_{str(wrong['loc'][0]).upper()} is {wrong['input']!r}: {wrong['msg']}"
    text = " ".join(str(e).split())
    if isinstance(e, psycopg.Error):
        return (UNREACHABLE if isinstance(e, psycopg.OperationalError) else WRONG), text
    return (UNREACHABLE if isinstance(e, StoreUnavailable | EmbeddedUnavailable) else WRONG), text
