"""Saving: data file first, under a name that no model refers to yet; the model last.

At every instant a reader finds the old model with its data, or the new one with its.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewriter.errors import ModelWriteError
from rewriter.storage.arrays import has_raw_form, raw_bytes, raw_range
from rewriter.storage.data_files import Origin, Undo, copy_data, install, references, remove_orphans
from rewriter.storage.destination import Destination, Staged, writing
from rewriter.storage.external import location_of
from rewriter.storage.sink import FileSink

if TYPE_CHECKING:
    from pathlib import Path

    from rewriter.storage.mapped import MappedFile
    from rewriter.storage.plan import Message, TensorPart


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
    orphans = references(destination)
    data: Path | None = None
    with writing(target), Staged(destination.folder, destination.mode) as staged, ExitStack() as undo:
        if moving:
            data = _write_data(origin, moving, destination, Undo(undo, staged, destination.path))
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
    remove_orphans(origin, destination, orphans - kept)
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
    orphans = references(destination)
    with writing(target), Staged(destination.folder, destination.mode) as staged, ExitStack() as undo:
        for location in sorted(locations):
            if not copy_data(origin, location, destination, Undo(undo, staged, destination.path)):
                return None
        sink = FileSink(staged.fd)
        sink.copy(file.fd, 0, file.size)
        sink.flush()
        _check_sources(origin)
        staged.finish()
        staged.place(destination.path)
        undo.pop_all()
    remove_orphans(origin, destination, orphans - locations)
    return SaveResult(target, file.size)


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


def _write_data(origin: Origin, parts: list[TensorPart], destination: Destination, undo: Undo) -> Path:
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
        path = install(origin, staged, destination, undo)
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
