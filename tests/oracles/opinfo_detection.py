"""OpInfo's entries for the passes of passes/detection/; see the package's docstring."""

from __future__ import annotations

from tests.oracles.table import Row, Unrun

ROWS: tuple[Row, ...] = ()

UNRUN: tuple[Unrun, ...] = ()
