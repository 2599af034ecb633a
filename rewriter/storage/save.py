"""Saving: data file first, under a name that no model refers to yet; the model last.

At every instant a reader finds the old model with its data, or the new one with its.
"""

from __future__ import annotations

import contextlib
import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Protocol

from google.protobuf.message import DecodeError

from rewriter.errors import ExternalDataError, ModelWriteError
from rewriter.storage.arrays import has_raw_form, raw_bytes, raw_range
from rewriter.storage.destination import Destination, Staged, writing
from rewriter.storage.external import location_of
from rewriter.storage.mapped import MappedFile
from rewriter.storage.plan import Message, TensorPart, plan
from rewriter.storage.sink import FileSink
from rewriter.storage.skeleton import scan
from rewriter.storage.wire import IrregularError, WireError

if TYPE_CHECKING:
    from pathlib import Path

    from rewriter.storage.external import ExternalData

#: Above this many bytes weights go to a data file.  Protobuf's limit is 2 GiB; the rest is room for what runtimes and
#: converters add when they load and save the model again.
INLINE_LIMIT = 1_900_000_000
#: What protobuf cannot exceed.
HARD_LIMIT = (1 << 31) - 1
#: Tensors of a page and more begin at a page, so that runtimes can map them; smaller ones at a cache line.
PAGE, LINE = 4096, 64


@dataclass(frozen=True, slots=True)
class SaveResult:
    """What was written: the model's path and size, and the data file beside it, where there is one."""

    path: Path
    size: int
    data: Path | None = None
    data_size: int = 0


class Origin(Protocol):
    """What the payloads come from."""

    file: MappedFile | None
    external: ExternalData


def save(origin: Origin, root: Message, target: Path) -> SaveResult:
    """Write the planned model to ``target``.  Raises ModelWriteError, ExternalDataError, ModelReadError; whatever it
    raises, and also on KeyboardInterrupt, an existing model is as it was and nothing is left beside it."""
    external = [part for part in root.tensors() if part.payload is None]
    for part in external:
        origin.external.locate(part.header)
    moving = [] if _in_place(origin, target) else external
    moving += _too_large(root)
    destination = Destination(target, follow=not moving)
    _refuse_own_data(origin, destination)
    orphans = _references(destination)
    data: Path | None = None
    with writing(target), Staged(destination.folder, destination.mode) as staged, ExitStack() as undo:
        if moving:
            data = _write_data(origin, moving, destination, _Undo(undo, staged, destination.path))
            root.forget_lengths()
        if root.length() > HARD_LIMIT:
            raise ModelWriteError(
                f"the model would be {root.length()} bytes, above protobuf's limit of 2 GiB, and what is large in it "
                "cannot stand in a data file (text, attributes, metadata)",
                where=str(target),
            )
        sink = FileSink(staged.fd)
        root.write(sink)
        sink.flush()
        _check_sources(origin)
        staged.finish()
        staged.place(destination.path)
        undo.pop_all()
        size = sink.position
    kept = {location_of(part.header) for part in root.tensors() if not part.inline}
    _remove_orphans(origin, destination, orphans - kept)
    return SaveResult(target, size, data, 0 if data is None else data.stat().st_size)


def copy(origin: Origin, file: MappedFile, locations: set[str], target: Path) -> SaveResult | None:
    """The same bytes at ``target``, and data files under the same relative names.

    None, with nothing written, where that would share the input's data files or touch others: the caller saves instead,
    with references of its own.
    """
    if _in_place(origin, target):
        return SaveResult(target, file.size)
    destination = Destination(target, follow=not locations)
    _refuse_own_data(origin, destination)
    orphans = _references(destination)
    with writing(target), Staged(destination.folder, destination.mode) as staged, ExitStack() as undo:
        for location in sorted(locations):
            if not _copy_data(origin, location, destination, _Undo(undo, staged, destination.path)):
                return None
        sink = FileSink(staged.fd)
        sink.copy(file.fd, 0, file.size)
        sink.flush()
        _check_sources(origin)
        staged.finish()
        staged.place(destination.path)
        undo.pop_all()
    _remove_orphans(origin, destination, orphans - locations)
    return SaveResult(target, file.size)


@dataclass(frozen=True, slots=True)
class _Undo:
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


def _in_place(origin: Origin, target: Path) -> bool:
    """Whether ``target`` is the model itself, seen from the folder in which its data is looked up."""
    if origin.file is None or origin.external.folder is None or not origin.file.is_same(target):
        return False
    try:
        return target.parent.samefile(origin.external.folder)
    except OSError:
        return False


def _too_large(root: Message) -> list[TensorPart]:
    """What has to go to a data file for the model to fit protobuf: plain weights, and other tensors only if need be."""
    total = root.length()
    if total <= INLINE_LIMIT:
        return []
    able = [p for p in root.tensors() if p.payload is not None and has_raw_form(p.header, p.payload)]
    chosen = [p for p in able if p.dense_initializer]
    if total - sum(p.payload_size for p in chosen) > INLINE_LIMIT:
        chosen = able
    return chosen


def _write_data(origin: Origin, parts: list[TensorPart], destination: Destination, undo: _Undo) -> Path:
    """Write the elements of ``parts`` to a new data file, once for equal ranges, and have them refer to it."""
    places: list[tuple[int, int]] = []
    seen: dict[tuple[Path, int, int], tuple[int, int]] = {}
    with Staged(destination.folder, destination.mode) as staged:
        sink = FileSink(staged.fd)
        for part in parts:
            source = _range(origin, part)
            place = None if source is None else seen.get((source[0].path, *source[1:]))
            if place is None:
                length = part.payload_size if source is None else source[2]
                sink.pad_to(PAGE if length >= PAGE else LINE)
                start = sink.position
                if source is not None:
                    file, offset, _ = source
                    sink.copy(file.fd, offset, length)
                    sink.settle()  # the file may be released before the next
                    seen[file.path, offset, length] = start, length
                elif part.payload is not None:
                    for piece in part.payload.pieces():
                        sink.write(raw_bytes(part.header, piece))
                place = start, sink.position - start
            places.append(place)
        sink.flush()
        staged.finish()
        path = _install(origin, staged, destination, undo)
    for part, (offset, length) in zip(parts, places, strict=True):
        part.refer(path.name, offset, length)
    return path


def _range(origin: Origin, part: TensorPart) -> tuple[MappedFile, int, int] | None:
    """(file, offset, length) of raw elements in a file."""
    if part.payload is None:
        file, raw = origin.external.locate(part.header)
        return file, raw.offset, raw.length
    found = raw_range(part.header, part.payload)
    return None if found is None or origin.file is None else (origin.file, *found)


def _install(origin: Origin, staged: Staged, destination: Destination, undo: _Undo) -> Path:
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


def _copy_data(origin: Origin, location: str, destination: Destination, undo: _Undo) -> bool:
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


def _make_folders(folder: Path, undo: _Undo) -> None:
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


def _refuse_own_data(origin: Origin, destination: Destination) -> None:
    for used in origin.external.paths():
        if destination.existing is not None and destination.path.samefile(used):
            raise ModelWriteError(
                "it holds the external data of the input model",
                where=str(destination.target),
                remedy="choose another name for the output",
            )


def _check_sources(origin: Origin) -> None:
    if origin.file is not None:
        origin.file.check_unchanged()
    origin.external.unchanged()


def _references(destination: Destination) -> set[str]:
    """Data files of ours that the model about to be replaced refers to."""
    if destination.existing is None:
        return set()
    ours = re.compile(re.escape(destination.path.name) + r"(\.[1-9][0-9]*)?\.data")
    with contextlib.suppress(OSError):
        names = [path.name for path in destination.folder.iterdir()]
        if any(ours.fullmatch(name) for name in names):
            return {name for name in locations_in(destination.path) if ours.fullmatch(name)}
    return set()


def _remove_orphans(origin: Origin, destination: Destination, names: set[str]) -> None:
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
