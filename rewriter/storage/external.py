"""External data of a source model: where it is, checked before anything is read.

A location is looked up beside the model, under the name that the model was opened by, as runtimes do.  The file
that it leads to must lie in that folder or, where the model file is itself a link, in the folder that the link leads to
(model caches keep both files elsewhere and link to them).  Nothing else is ever opened.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from onnx import TensorProto

from rewriter.errors import ExternalDataError
from rewriter.storage.dtypes import element_bits, element_count
from rewriter.storage.mapped import MappedFile

if TYPE_CHECKING:
    from collections.abc import Iterable


#: Some exporters write a file for each tensor, and a process may have only so many open.
OPEN_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class RawLocation:
    """Raw little-endian bytes in a file."""

    path: Path
    offset: int
    length: int


def is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL


def location_of(tensor: TensorProto) -> str:
    """The file that an external tensor names; raises ExternalDataError where it names none."""
    value = _entries(tensor).get("location", "")
    if not value:
        raise ExternalDataError(
            "the tensor is marked as external but names no file",
            where=_where(tensor),
            remedy="export the model again; its 'external_data' has no 'location'",
        )
    return value


class ExternalData:
    """The data files of one model.  ``folder`` is None for a model in memory that was given no base."""

    def __init__(self, folder: Path | None, also: Path | None = None) -> None:
        self.folder = folder
        self._roots = (
            [] if folder is None else [Path(os.path.realpath(f)) for f in (folder, also) if f is not None]
        )
        self._files: dict[str, MappedFile] = {}
        self._recent: deque[MappedFile] = deque()

    def file(self, location: str, where: str) -> MappedFile:
        """The data file at ``location``, checked."""
        found = self._files.get(location)
        if found is None:
            found = self._files[location] = self._open(location, where)
        if found not in self._recent:
            if len(self._recent) == OPEN_AT_ONCE:
                self._recent.popleft().release()
            self._recent.append(found)
        return found

    def locate(self, tensor: TensorProto) -> tuple[MappedFile, RawLocation]:
        """The range that an external tensor refers to, checked to lie inside its file."""
        where = _where(tensor)
        file = self.file(location_of(tensor), where)
        entries = _entries(tensor)
        offset = _number(entries.get("offset", "0"), "offset", where)
        if "length" in entries:
            length = _number(entries["length"], "length", where)
        else:
            length = max(file.size - offset, 0)
            bits = element_bits(tensor.data_type)
            if bits:  # without a length the elements begin at the offset, and what follows is not theirs
                length = (element_count(tensor, where) * bits + 7) // 8
        if offset + length > file.size:
            raise ExternalDataError(
                f"external data ends at byte {offset + length} of '{file.path.name}', which has only {file.size}",
                where=where,
                remedy="the data file is incomplete or belongs to another model; copy or export it again",
            )
        return file, RawLocation(file.path, offset, length)

    def paths(self) -> Iterable[Path]:
        """The data files touched so far."""
        return [file.path for file in self._files.values()]

    def identities(self) -> dict[str, tuple[int, int, int, int]]:
        """What tells each of them from others, by location."""
        return {location: file.identity for location, file in self._files.items()}

    def unchanged(self) -> None:
        for file in self._files.values():
            file.check_unchanged()

    def in_place(self, locations: Iterable[str]) -> None:
        """Raises ModelReadError where one of ``locations`` leads to another file than the one that was read."""
        for location in locations:
            self.file(location, "external data").check_in_place()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._recent.clear()

    def _open(self, location: str, where: str) -> MappedFile:
        if self.folder is None:
            raise ExternalDataError(
                f"the weights are in the file '{location}', and a model in memory does not say in which folder",
                where=where,
                remedy="pass the folder as base, or the model's path in place of the model",
            )
        pure = PurePosixPath(location)
        if "\0" in location or pure.is_absolute() or Path(location).is_absolute() or location[1:2] == ":":
            self._refuse(location, "is not a relative path", where)
        if ".." in pure.parts or ".." in location.replace("\\", "/").split("/"):
            self._refuse(location, "leaves the model's folder ('..')", where)
        try:
            real = Path(os.path.realpath(self.folder / location, strict=True))
            if not any(real.is_relative_to(root) for root in self._roots):
                self._refuse(location, "is a link that leaves the model's folder", where)
            return MappedFile.open(real)
        except FileNotFoundError:
            raise ExternalDataError(
                f"the data file '{location}' does not exist in '{self.folder}'",
                where=where,
                remedy="keep it beside the model; a model with external data is moved together with its files",
            ) from None
        except OSError as error:
            raise ExternalDataError(
                f"the data file '{location}' cannot be read: {error.strerror or error}", where=where
            ) from None

    @staticmethod
    def _refuse(location: str, why: str, where: str) -> None:
        raise ExternalDataError(
            f"the external data location '{location}' {why}",
            where=where,
            remedy="external data must lie in the model's folder or below; nothing else is read",
        )


def _where(tensor: TensorProto) -> str:
    return f"tensor '{tensor.name}'" if tensor.name else "an unnamed tensor"


def _entries(tensor: TensorProto) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in tensor.external_data:
        # protobuf hands out bytes where a string is not UTF-8; file names may be any bytes
        name, value = (
            os.fsdecode(part) if isinstance(part, bytes) else part for part in (entry.key, entry.value)
        )
        found[name] = value
    return found


def _number(text: str, what: str, where: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise ExternalDataError(
            f"the external data {what} {text[:40]!r} is not a number of bytes",
            where=where,
            remedy="export the model again",
        )
    return int(text)
