"""The data files beside models: which names are free, whose they are, and which nobody needs any more."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Protocol

from google.protobuf.message import DecodeError

from rewriter.errors import ExternalDataError, ModelWriteError
from rewriter.storage.destination import Destination, Staged
from rewriter.storage.external import location_of
from rewriter.storage.mapped import MappedFile
from rewriter.storage.plan import Message, plan
from rewriter.storage.sink import FileSink
from rewriter.storage.skeleton import scan
from rewriter.storage.wire import IrregularError, WireError

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from rewriter.storage.external import ExternalData


class Origin(Protocol):
    """What the payloads come from."""

    file: MappedFile | None
    external: ExternalData


@dataclass(frozen=True, slots=True)
class Undo:
    """Takes new files away again, unless the model that refers to them, ``staged``, has got its name ``final``."""

    stack: ExitStack
    model: Staged
    final: Path

    def file(self, path: Path, data: Staged) -> None:
        """To be called before ``data`` is named ``path``."""
        self.stack.callback(self._unlink, path, data)

    def folder(self, path: Path) -> None:
        self.stack.callback(self._rmdir, path)

    def _unlink(self, path: Path, data: Staged) -> None:
        if data.is_at(path) and not self.model.is_at(self.final):
            with contextlib.suppress(OSError):
                path.unlink()

    @staticmethod
    def _rmdir(path: Path) -> None:
        with contextlib.suppress(OSError):  # not empty
            path.rmdir()


def install(origin: Origin, staged: Staged, destination: Destination, undo: Undo) -> Path:
    """Name the data file: ``<model>.data``, or with a number where that exists and is another's.

    A file of the same content is used as it is, so that a second run gives the same model.
    """
    name = destination.path.name
    for number in count():
        path = destination.folder / (f"{name}.{number}.data" if number else f"{name}.data")
        undo.file(path, staged)
        if staged.place_new(path):
            return path
        if _same_content(path, staged.fd) and not _is_input(origin, path):
            return path
    raise AssertionError


def copy_data(origin: Origin, location: str, destination: Destination, undo: Undo) -> bool:
    source = origin.external.file(location, "external data")
    path = destination.folder / location
    if not _real(path.parent).is_relative_to(_real(destination.folder)) or path == destination.path:
        return False
    try:
        _make_folders(path.parent, undo)
        taken = os.path.lexists(path)
    except (FileExistsError, NotADirectoryError):  # what should be a folder is a file
        return False
    if taken:
        return not _is_input(origin, path) and _same_content(path, source.fd)
    with Staged(path.parent, source.mode) as staged:
        sink = FileSink(staged.fd)
        sink.copy(source.fd, 0, source.size)
        sink.flush()
        staged.finish()
        undo.file(path, staged)
        return staged.place_new(path)


def _make_folders(folder: Path, undo: Undo) -> None:
    if not folder.is_dir():
        _make_folders(folder.parent, undo)
        folder.mkdir()
        undo.folder(folder)


def _same_content(path: Path, fd: int) -> bool:
    """Whether ``path`` is a plain file with the bytes of ``fd``."""
    size = os.fstat(fd).st_size
    try:
        if path.is_symlink() or path.stat().st_size != size:
            return False
        other = MappedFile.open(path)
    except OSError:
        return False
    try:
        block = 1 << 22
        return all(
            os.pread(fd, block, offset) == os.pread(other.fd, block, offset)
            for offset in range(0, size, block)
        )
    finally:
        other.close()


def _is_input(origin: Origin, path: Path) -> bool:
    """Whether ``path`` is a data file of another model file that is being read."""
    return origin.file is not None and any(path.samefile(used) for used in origin.external.paths())


def references(destination: Destination) -> set[str]:
    """Data files of ours that the model about to be replaced refers to."""
    if destination.existing is None:
        return set()
    ours = re.compile(re.escape(destination.path.name) + r"(\.[1-9][0-9]*)?\.data")
    with contextlib.suppress(OSError):
        names = [path.name for path in destination.folder.iterdir()]
        if any(ours.fullmatch(name) for name in names):
            return {name for name in locations_in(destination.path) if ours.fullmatch(name)}
    return set()


def remove_orphans(origin: Origin, destination: Destination, names: set[str]) -> None:
    for name in sorted(names):
        path = destination.folder / name
        with contextlib.suppress(OSError):
            if not any(path.samefile(used) for used in origin.external.paths()):
                path.unlink()


def locations_in(path: Path) -> set[str]:
    """The data files that the model at ``path`` names; none if it is no model."""
    try:
        file = MappedFile.open(path)
    except OSError:
        return set()
    try:
        skeleton = scan(file, file.size, 1024)
        return external_locations(skeleton.content, plan(skeleton.content, skeleton.token, skeleton.payloads))
    except (WireError, IrregularError, DecodeError, ExternalDataError, ModelWriteError):
        return set()
    finally:
        file.close()


def external_locations(content: bytes, root: Message) -> set[str]:
    """The locations that the external tensors of a planned model name."""
    if b"location" not in content:
        return set()
    return {location_of(part.header) for part in root.tensors() if part.payload is None}


def _real(path: Path) -> Path:
    return path.resolve()
