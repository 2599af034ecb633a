"""What a run is busy with, told to whoever watches: rich bars on a terminal, nothing elsewhere.

The engine's parts report to a :class:`Progress` and know nothing of terminals.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rewriter.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager


class Stage(Protocol):
    """One step of a run (load, passes, simplify, verify, save), perhaps of a known length."""

    def advance(self, steps: int = 1) -> None: ...

    def note(self, text: str) -> None:
        """What the stage is at, in a few words."""


class Progress(Protocol):
    def stage(self, name: str, total: int | None = None) -> AbstractContextManager[Stage]: ...


class _QuietStage:
    def advance(self, steps: int = 1) -> None:
        pass

    def note(self, text: str) -> None:
        pass


class Quiet:
    """Nobody watches."""

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:  # noqa: ARG002
        yield _QuietStage()


@contextmanager
def on_terminal() -> Iterator[Progress]:
    """Bars on standard error while the context lasts; they disappear when it ends."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description:<9}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
        console=Console(stderr=True),
        transient=True,
    )

    class Bar:
        def __init__(self, task: object) -> None:
            self.task = task

        def advance(self, steps: int = 1) -> None:
            bars.advance(self.task, steps)  # type: ignore[arg-type]

        def note(self, text: str) -> None:
            bars.update(self.task, note=printable(text))  # type: ignore[arg-type]

    class Terminal:
        @contextmanager
        def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
            task = bars.add_task(name, total=total, note="")
            yield Bar(task)
            bars.update(task, total=1, completed=1, note="")

    with bars:
        yield Terminal()
