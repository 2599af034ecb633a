"""The runtimes that a delivered file can be tried on, by name."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from rewriter.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The package that each runtime comes with.
RUNTIMES: Final = {
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "tract": "tract",
    "reference": "onnx",
}


def parse(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Names of runtimes, as a list or separated by commas, each once; ``"all"`` is every one.

    UsageError for a name that is none.
    """
    if names is None:
        return ()
    given = names.split(",") if isinstance(names, str) else list(names)
    found: dict[str, None] = {}
    for name in (item.strip() for item in given):
        if name == "all":
            found |= dict.fromkeys(RUNTIMES)
        elif name in RUNTIMES:
            found[name] = None
        elif name:
            near = difflib.get_close_matches(name, RUNTIMES, 1)
            meant = f"did you mean '{near[0]}'? " if near else ""
            raise UsageError(
                f"'{name}' is no runtime that this tool drives", remedy=f"{meant}{', '.join(RUNTIMES)} or all"
            )
    return tuple(found)
