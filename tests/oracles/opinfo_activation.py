"""OpInfo's entries for the passes of passes/activation/; see the package's docstring."""

from tests.oracles.table import Row, Unrun

ROWS: tuple[Row, ...] = (Row("swish", ("nn.functional.silu",)),)

UNRUN: tuple[Unrun, ...] = ()
