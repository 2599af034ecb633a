"""Looking at processes."""

from __future__ import annotations

import time
from pathlib import Path


def is_gone(pid: int, seconds: float = 5.0) -> bool:
    """Whether the process ends in this time (it may be a zombie that init has not collected yet)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


def descendants(pid: int) -> list[int]:
    """All processes that ``pid`` started, directly or not."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [*found, *(below for child in found for below in descendants(child))]
