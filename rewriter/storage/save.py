"""Saving: data file first, under a name that no model refers to yet; the model last.

At every instant a reader finds the old model with its data, or the new one with its.  Everything large is written to
temporary files first.  Naming them, and removing what the old model needed, happens under the lock of the folder.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewriter.errors import ModelWriteError
from rewriter.storage.arrays import has_raw_form, raw_bytes, raw_range
from rewriter.storage.data_files import (
    Origin,
    copy_data,
    install,
    orphans,
    remove,
    same_file,
)
from rewriter.storage.destination import Destination, Staged, writing
from rewriter.storage.external import location_of
from rewriter.storage.locks import folder_lock
from rewriter.storage.sink import FileSink
from rewriter.storage.undo import Undo

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    in_place = _in_place(origin, target)
    moving = ([] if in_place else external) + _too_large(root)
    stays = {location_of(part.header) for part in external} if in_place else set()
    destination = Destination(target, follow=not moving)
    _refuse_own_data(origin, destination)
    with writing(target), ExitStack() as staging:
        staged = staging.enter_context(Staged(destination.folder, destination.mode))
        data = staging.enter_context(Staged(destination.folder, destination.mode)) if moving else None
        places = [] if data is None else _write_data(origin, moving, data)
        if data is None:
            size = _write_model(root, staged, target)
        with folder_lock(destination.folder, target) as locked, Undo(staged, destination.path) as undo:
            path: Path | None = None
            if data is not None:
                path = install(origin, data, destination, undo, share=locked)
                for part, (offset, length) in zip(moving, places, strict=True):
                    part.refer(path.name, offset, length)
                root.forget_lengths()
                size = _write_model(root, staged, target)
            _check_sources(origin)
            origin.external.in_place(stays)
            kept = {location_of(part.header) for part in root.tensors() if not part.inline}
            _place(staged, destination, undo, orphans(origin, destination, kept))
    data_size = max((offset + length for offset, length in places), default=0)
    return SaveResult(target, size, path, data_size)


def _place(staged: Staged, destination: Destination, undo: Undo, old: Sequence[Path]) -> None:
    """Give the model its name, and remove the data files ``old`` of the model that had it."""
    for path in old:
        undo.afterwards(path)
    staged.place(destination.path)
    undo.keep()
    remove(old)


def _write_model(root: Message, staged: Staged, target: Path) -> int:
    """Write the model to its temporary file; its size."""
    if root.length() > HARD_LIMIT:
        raise ModelWriteError(
            f"the model would be {root.length()} bytes, above protobuf's limit of 2 GiB, and what is large in it "
            "cannot stand in a data file (text, attributes, metadata)",
            where=str(target),
        )
    sink = FileSink(staged.fd)
    root.write(sink)
    sink.flush()
    staged.finish()
    return sink.position


def copy(origin: Origin, file: MappedFile, locations: set[str], target: Path) -> SaveResult | None:
    """The same bytes at ``target``, and data files under the same relative names.

    None, with nothing written, where that would share the input's data files or touch others: the caller saves instead,
    with references of its own.
    """
    if _in_place(origin, target):
        return SaveResult(target, file.size)
    destination = Destination(target, follow=not locations)
    _refuse_own_data(origin, destination)
    with writing(target), Staged(destination.folder, destination.mode) as staged:
        sink = FileSink(staged.fd)
        sink.copy(file.fd, 0, file.size)
        sink.flush()
        staged.finish()
        with folder_lock(destination.folder, target) as locked, Undo(staged, destination.path) as undo:
            for location in sorted(locations):
                if not copy_data(origin, location, destination, undo, share=locked):
                    return None
            _check_sources(origin)
            _place(staged, destination, undo, orphans(origin, destination, locations))
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


def _write_data(origin: Origin, parts: list[TensorPart], staged: Staged) -> list[tuple[int, int]]:
    """Write the elements of ``parts`` to a new data file, once for equal ranges; offset and length of each."""
    places: list[tuple[int, int]] = []
    seen: dict[tuple[Path, int, int], tuple[int, int]] = {}
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
    return places


def _range(origin: Origin, part: TensorPart) -> tuple[MappedFile, int, int] | None:
    """(file, offset, length) of raw elements in a file."""
    if part.payload is None:
        file, raw = origin.external.locate(part.header)
        return file, raw.offset, raw.length
    found = raw_range(part.header, part.payload)
    return None if found is None or origin.file is None else (origin.file, *found)


def _refuse_own_data(origin: Origin, destination: Destination) -> None:
    for used in origin.external.paths():
        if destination.existing is not None and same_file(destination.path, used):
            raise ModelWriteError(
                "it holds the external data of the input model",
                where=str(destination.target),
                remedy="choose another name for the output",
            )


def _check_sources(origin: Origin) -> None:
    if origin.file is not None:
        origin.file.check_unchanged()
    origin.external.unchanged()
