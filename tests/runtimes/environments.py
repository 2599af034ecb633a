"""The runtimes, and where each of them is installed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Environment:
    """A runtime in an environment of its own; ``folder`` None is the one that runs the tests."""

    runtime: str
    folder: Path | None = None

    @property
    def python(self) -> Path:
        return Path(sys.executable) if self.folder is None else self.folder / "bin" / "python"

    def check(self) -> None:
        """FileNotFoundError where it has not been made."""
        if not self.python.exists():
            raise FileNotFoundError(f"{self.runtime} has no environment '{self.folder}': run `make runtimes`")


def environments(old: Path = ROOT / ".venv-ort115") -> list[Environment]:
    """All runtimes; two versions of onnxruntime cannot live in one process, nor in one environment."""
    return [
        Environment("onnxruntime"),
        Environment("onnxruntime-1.15.1", old),
        Environment("openvino"),
        Environment("tract"),
        Environment("reference"),
    ]
