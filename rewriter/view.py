"""How reports look on a terminal, and in a pipe: labelled lines, coloured for people only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

_STYLES = {
    "verified": {"fg": "green", "bold": True},
    "wrote": {"fg": "green", "bold": True},
    "differs": {"fg": "red", "bold": True},
    "unverified": {"fg": "yellow", "bold": True},
    "warning": {"fg": "yellow", "bold": True},
    "unknown": {"fg": "yellow", "bold": True},
}


def show(lines: Iterable[tuple[str, str]]) -> None:
    """(label, text) lines on standard output; a repeated label is shown once."""
    lines = list(lines)
    width = max((len(label) for label, _ in lines), default=0)
    last = None
    for label, text in lines:
        shown = "" if label == last else label
        last = label
        styled = click.style(f"{shown:<{width}}", **_STYLES.get(label, {"bold": True}))  # type: ignore[arg-type]
        click.echo(f"{styled}  {text}")


def complain(text: str) -> None:
    """One message on standard error; ``error:`` in red where somebody looks."""
    head, colon, rest = text.partition(":")
    if colon and head in ("error", "warning"):
        text = click.style(head + colon, fg="red" if head == "error" else "yellow", bold=True) + rest
    click.echo(text, err=True)


def watched() -> bool:
    """Whether standard error is a terminal that somebody looks at."""
    return sys.stderr.isatty()
