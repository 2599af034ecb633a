"""Inputs that were finds once: `corpus/*.onnx`, and in `corpus/index.json` how each was tried and what it caused."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.judge import Options

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).with_name("corpus")
_INDEX = FOLDER / "index.json"


def entries() -> Iterator[tuple[Path, Options]]:
    """The files with their options, in order of name."""
    for name, entry in sorted(_read().items()):
        yield FOLDER / name, Options(**entry["options"])


def add(name: str, data: bytes, options: Options, cause: str) -> Path:
    """Keep an input under ``name``; what it caused is for people."""
    index = _read()
    index[f"{name}.onnx"] = {"cause": cause, "options": asdict(options)}
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.onnx"
    path.write_bytes(data)
    _INDEX.write_text(json.dumps(dict(sorted(index.items())), indent=1) + "\n", encoding="utf-8")
    return path


def _read() -> dict[str, dict[str, object]]:
    return dict(json.loads(_INDEX.read_text(encoding="utf-8"))) if _INDEX.exists() else {}
