"""The libraries of a model's own operators: what its manifest says of each, and what is here.

A file that the manifest names is at most read, for its checksum.  Only one that was named by the caller, and that is
the one recorded where one is recorded, is ever loaded.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rewriter.libraries import Libraries
    from rewriter.manifest import Manifest


@dataclass(frozen=True)
class Needed:
    """The library of one operator.

    ``state`` is ``"matches"`` (given, and the one recorded), ``"given"`` (nothing is recorded to hold it against),
    ``"differs"`` (given, and not the one recorded), ``"beside"`` (not given, but the one recorded lies beside the
    model), ``"missing"``, or ``"built in"``.
    """

    state: str
    #: File name and SHA-256 as recorded, None where nothing is.
    file: str | None = None
    sha256: str | None = None
    #: What was given: its file name and SHA-256.
    given: str | None = None
    given_sha256: str | None = None

    @property
    def may_load(self) -> bool:
        return self.state in ("matches", "given")

    @property
    def text(self) -> str:
        recorded = f"{self.file} (sha256 {_short(self.sha256)})" if self.file else "its library"
        match self.state:
            case "built in":
                return "onnxruntime's own"
            case "matches":
                return f"{recorded} is here, as recorded"
            case "given":
                return f"{self.given} (sha256 {_short(self.given_sha256)}) is here; none is recorded"
            case "differs":
                return f"{self.given} (sha256 {_short(self.given_sha256)}) is not the recorded {recorded}; not loaded"
            case "beside":
                return f"{recorded} lies beside the model; name it with --library to have it loaded"
            case _:
                return f"{recorded} was not given" if self.file else "no library is recorded or given"


def needed(
    domain: str, name: str, manifest: Manifest | None, libraries: Libraries, folder: Path | None
) -> Needed:
    """What there is to say of the library of one operator; ``folder`` is the model's."""
    file, sha256 = _recorded(domain, name, manifest)
    if domain in libraries.paths:
        given, checksum = libraries.paths[domain].name, libraries.checksums[domain]
        state = "given" if sha256 is None else "matches" if sha256 == checksum else "differs"
        return Needed(state, file, sha256, given, checksum)
    if file is not None and folder is not None and sha256 is not None and _checksum(folder / file) == sha256:
        return Needed("beside", file, sha256)
    return Needed("missing", file, sha256)


def _recorded(domain: str, name: str, manifest: Manifest | None) -> tuple[str | None, str | None]:
    """File name and checksum in the manifest, which comes from a file: what is no plain name is none."""
    entries: Iterable[Mapping[str, Any]] = (
        () if manifest is None else (*manifest.kept, *manifest.runtime_operators)
    )
    for entry in entries:
        library = entry.get("library")
        if (entry["domain"], entry["name"]) == (domain, name) and isinstance(library, dict):
            file, sha256 = library.get("file"), library.get("sha256")
            if (
                isinstance(file, str)
                and isinstance(sha256, str)
                and file not in ("", "..")
                and _is_plain(file)
            ):
                return file, sha256
    return None, None


def _is_plain(file: str) -> bool:
    return Path(file).name == file and "\\" not in file and "\0" not in file


def _checksum(path: Path) -> str | None:
    try:
        if not path.is_file() or path.is_symlink():
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _short(sha256: str | None) -> str:
    return f"{sha256[:12]}…" if sha256 else "unknown"
