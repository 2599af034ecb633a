"""The libraries that run what is kept: found, and known by their checksum."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.errors import UsageError

if TYPE_CHECKING:
    from rewriter.manifest import Manifest


@dataclass(frozen=True)
class Libraries:
    """By domain: where the library is, and the SHA-256 of its content."""

    paths: Mapping[str, Path]
    checksums: Mapping[str, str]

    @classmethod
    def read(cls, given: Mapping[str, str | os.PathLike[str]]) -> Libraries:
        """UsageError where a file cannot be read."""
        paths = {domain: Path(file) for domain, file in given.items()}
        checksums: dict[str, str] = {}
        for domain, path in paths.items():
            try:
                with path.open("rb") as file:
                    checksums[domain] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise UsageError(
                    f"the library for '{domain}' cannot be read: {error.strerror}", where=str(path)
                ) from error
        return cls(paths, checksums)

    def of(self, domain: str, name: str, earlier: Manifest | None) -> tuple[str | None, str | None]:
        """File name and checksum for an operator; those of an earlier manifest where none was given now."""
        if domain in self.paths:
            return self.paths[domain].name, self.checksums[domain]
        for entry in earlier.kept if earlier else ():
            library = entry.get("library")
            if entry["domain"] == domain and entry["name"] == name and isinstance(library, dict):
                return library.get("file"), library.get("sha256")
        return None, None
