"""How reports look on a terminal, and in a pipe: labelled lines, coloured for people only."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from rewriter.errors import ModelWriteError
from rewriter.report import columns
from rewriter.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

_STYLES = {
    "verified": {"fg": "green", "bold": True},
    "wrote": {"fg": "green", "bold": True},
    "runs": {"fg": "green", "bold": True},
    "cannot run": {"fg": "red", "bold": True},
    "differs": {"fg": "red", "bold": True},
    "partly verified": {"fg": "yellow", "bold": True},
    "unproved": {"fg": "yellow", "bold": True},
    "unverified": {"fg": "yellow", "bold": True},
    "warning": {"fg": "yellow", "bold": True},
    "unknown": {"fg": "yellow", "bold": True},
}


def show(lines: Iterable[tuple[str, str]]) -> None:
    """(label, text) lines on standard output; a repeated label is shown once.

    ModelWriteError where it takes none (a full disk); BrokenPipeError where nobody reads any more.
    """
    try:
        for label, cell, text in columns(lines):
            click.echo(f"{click.style(cell, **_STYLES.get(label, {'bold': True}))}  {text}")  # type: ignore[arg-type]
    except BrokenPipeError:
        raise
    except OSError as error:
        silence()
        raise ModelWriteError(f"standard output cannot be written: {error.strerror}") from error


def silence() -> None:
    """Let standard output lead nowhere: python would complain once more when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(text: str, *more: str) -> None:
    """One message on standard error, ``more`` in lines of their own; ``error:`` in red where somebody looks.

    Characters that are not seen are written out: the message may quote a file.
    """
    text = printable(text)
    head, colon, rest = text.partition(":")
    if colon and head in ("error", "warning"):
        text = click.style(head + colon, fg="red" if head == "error" else "yellow", bold=True) + rest
    click.echo("\n  ".join((text, *map(printable, more))), err=True)


def watched() -> bool:
    """Whether standard error is a terminal that somebody looks at."""
    return sys.stderr is not None and sys.stderr.isatty()  # None where it was closed before we began
