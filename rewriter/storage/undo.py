"""Data files to take away: new ones where the model did not get its name, those of the old model where it did.

The run itself takes them away.  For a run that is killed the next run does it: what to take away stands in a journal,
a locked temporary file beside the model.  The journal names the model's temporary file.  While that exists, the model
does not have its name yet; renaming it decides in one step which files go.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

from rewriter.storage.destination import Staged
from rewriter.storage.locks import JOURNAL, identity_of

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class Undo:
    """Takes new files and folders away on exit, unless ``model`` has got its name ``final``."""

    def __init__(self, model: Staged, final: Path) -> None:
        self._model = model
        self._final = final
        self._made: list[tuple[Path, Staged | None]] = []
        self._journal: Staged | None = None

    def __enter__(self) -> Undo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._model.is_at(self._final):
                for path, data in reversed(self._made):
                    with contextlib.suppress(OSError):
                        if data is None:
                            path.rmdir()  # fails where something is in it
                        elif data.is_at(path):
                            path.unlink()
        finally:
            if self._journal is not None:
                self._journal.__exit__()

    def keep(self) -> None:
        """The model has its name: what is new stays."""
        self._made.clear()

    def file(self, path: Path, data: Staged) -> None:
        """To be called before ``data`` is named ``path``."""
        self._made.append((path, data))
        self._note(path, identity_of(os.fstat(data.fd)))

    def folder(self, path: Path) -> None:
        """To be called before the folder ``path`` is made."""
        self._made.append((path, None))
        self._note(path, None)

    def afterwards(self, path: Path) -> None:
        """To be called before the model gets its name: ``path`` is not needed then, and the caller removes it."""
        with contextlib.suppress(OSError):
            self._note(path, identity_of(path.lstat()), before=False)

    def _note(self, path: Path, identity: list[int] | None, *, before: bool = True) -> None:
        if self._journal is None:
            self._journal = Staged(self._model.folder, None)
            self._write(JOURNAL)
            self._write(self._model.path.name)
        self._write([os.path.relpath(path, self._model.folder), identity, before])

    def _write(self, line: Any) -> None:
        assert self._journal is not None
        self._journal.write(json.dumps(line).encode() + b"\n")
