"""The data files beside models: which names are free, whose they are, and which nobody needs any more."""

from __future__ import annotations

import contextlib
import os
import re
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
from rewriter.storage.sparse import same_bytes
from rewriter.storage.wire import IrregularError, WireError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rewriter.storage.external import ExternalData
    from rewriter.storage.undo import Undo


class Origin(Protocol):
    """What the payloads come from."""

    file: MappedFile | None
    external: ExternalData


def install(origin: Origin, staged: Staged, destination: Destination, undo: Undo, *, share: bool) -> Path:
    """Name the data file: ``<model>.data``, or with a number where that exists and is another's.

    With ``share`` a file of the same content is used as it is, so that a second run gives the same model.  That needs
    the lock of the folder: another run could remove the file meanwhile.
    """
    name = destination.path.name
    for number in count():
        path = destination.folder / (f"{name}.{number}.data" if number else f"{name}.data")
        undo.file(path, staged)
        if staged.place_new(path):
            return path
        if share and _same_content(path, staged.fd) and not _is_input(origin, path):
            return path
    raise AssertionError


def copy_data(origin: Origin, location: str, destination: Destination, undo: Undo, *, share: bool) -> bool:
    """Copy a data file of the input to the same relative name beside the target; False where that cannot be.

    With ``share`` a file of the same content that is there already serves; see :func:`install`.
    """
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
        return share and not _is_input(origin, path) and _same_content(path, source.fd)
    # In the folder of the model, where the next run looks for what a dead one left.
    same_disk = path.parent.stat().st_dev == destination.folder.stat().st_dev
    with Staged(destination.folder if same_disk else path.parent, source.mode) as staged:
        sink = FileSink(staged.fd)
        sink.copy(source.fd, 0, source.size)
        sink.flush()
        staged.finish()
        undo.file(path, staged)
        return staged.place_new(path)


def _make_folders(folder: Path, undo: Undo) -> None:
    if not folder.is_dir():
        _make_folders(folder.parent, undo)
        undo.folder(folder)
        folder.mkdir()


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
        return same_bytes(fd, other.fd, size)
    finally:
        other.close()


def _is_input(origin: Origin, path: Path) -> bool:
    """Whether ``path`` is a data file of another model file that is being read."""
    return origin.file is not None and _is_own(origin, path)


def _is_own(origin: Origin, path: Path) -> bool:
    return any(same_file(path, used) for used in origin.external.paths())


def same_file(one: Path, other: Path) -> bool:
    """Whether both names lead to one file; False where either leads to none."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def references(destination: Destination) -> set[str]:
    """Data files of ours that the model about to be replaced refers to."""
    ours = re.compile(re.escape(destination.path.name) + r"(\.[1-9][0-9]*)?\.data")
    with contextlib.suppress(OSError):
        names = [path.name for path in destination.folder.iterdir()]
        if any(ours.fullmatch(name) for name in names):
            return {name for name in locations_in(destination.path) if ours.fullmatch(name)}
    return set()


def orphans(origin: Origin, destination: Destination, kept: set[str]) -> list[Path]:
    """Data files of ours that only the model about to be replaced needs; not those of the input."""
    names = sorted(references(destination) - kept)
    return [path for path in (destination.folder / name for name in names) if not _is_own(origin, path)]


def remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
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
