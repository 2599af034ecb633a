"""The libraries that run what is kept: found, and known by their checksum."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.errors import UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from rewriter.manifest import Manifest
    from rewriter.report import Declared


@dataclass(frozen=True)
class Libraries:
    """By domain: where the library is, and the SHA-256 of its content."""

    paths: Mapping[str, Path]
    checksums: Mapping[str, str]

    @classmethod
    def read(cls, given: Mapping[str, str | os.PathLike[str]]) -> Libraries:
        """UsageError where a file cannot be read."""
        # Absolute: a loader looks for a bare name in folders of its own, and might load another file than is read here.
        paths = {domain: Path(file).absolute() for domain, file in given.items()}
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

    def declare(self, operator: Declared, earlier: Manifest | None) -> Declared:
        """``operator`` with the library given for its domain, or the one that an earlier manifest names."""
        if operator.domain in self.paths:
            return replace(
                operator, library=self.paths[operator.domain].name, sha256=self.checksums[operator.domain]
            )
        for entry in [*earlier.kept, *earlier.runtime_operators] if earlier else ():
            library = entry.get("library")
            if (entry["domain"], entry["name"]) == (operator.domain, operator.name) and isinstance(
                library, dict
            ):
                return replace(operator, library=library.get("file"), sha256=library.get("sha256"))
        return operator
