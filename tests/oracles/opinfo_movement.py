"""OpInfo's entries for the passes of passes/movement/; see the package's docstring."""

from tests.oracles.table import Row, Unrun

ROWS: tuple[Row, ...] = (Row("roll", ("roll",)),)

UNRUN: tuple[Unrun, ...] = ()
