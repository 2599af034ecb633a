from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onnx import ModelProto


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a model, or bytes, into the test's folder."""

    def write(model: ModelProto | bytes, name: str = "in.onnx") -> Path:
        path = tmp_path / name
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return path

    return write


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares the disk where thousands of files are written, and what is tested is their content."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())
