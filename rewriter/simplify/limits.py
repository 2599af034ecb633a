"""What the stage is limited to unless a caller says otherwise, and what it says where it did nothing."""

from __future__ import annotations

from typing import Final

#: Seconds of wall clock for the stage's worker processes, all attempts together.
DEFAULT_TIMEOUT: Final = 300.0
#: Bytes of address space that a worker may map beyond its libraries.
DEFAULT_MEMORY: Final = 4 << 30
#: The ``reason`` where the simplifier left the model as it was.
NOTHING: Final = "nothing to simplify"
