"""OpInfo's entries for the passes of passes/sampling/; see the package's docstring."""

from tests.oracles.table import Row, Unrun

ROWS: tuple[Row, ...] = ()

UNRUN: tuple[Unrun, ...] = ()
