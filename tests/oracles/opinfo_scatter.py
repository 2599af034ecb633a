"""OpInfo's entries for the passes of passes/scatter/; see the package's docstring."""

from __future__ import annotations

from tests.oracles.table import Row, Unrun

ROWS: tuple[Row, ...] = (
    Row("diagonal_scatter", ("diagonal_scatter",)),
    Row("as_strided_scatter", ("as_strided_scatter",)),
)

UNRUN: tuple[Unrun, ...] = ()
