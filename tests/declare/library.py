"""A library of custom operators for onnxruntime, built where a C++ compiler is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("triple.cc")


def build(folder: Path, *, name: str = "libtriple.so", factor: int = 3) -> Path:
    """The library of ``triple.cc``, whose operator multiplies by ``factor``; skips where nothing compiles C++."""
    compiler = next((found for found in map(shutil.which, ("c++", "g++", "clang++")) if found), None)
    if compiler is None:
        pytest.skip("no C++ compiler (c++, g++ or clang++) is on the PATH")
    target = folder / name
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-DFACTOR={factor}.0f"]
    subprocess.run([compiler, *flags, "-o", str(target), str(SOURCE)], check=True)
    return target
