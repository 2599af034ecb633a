"""OpInfo's entries for the passes of passes/sampling/; see the package's docstring."""

from tests.oracles.table import Row, Unrun

ROWS: tuple[Row, ...] = (
    Row("grid_sample", ("nn.functional.grid_sample", "grid_sampler_2d", "grid_sampler_3d")),
)

UNRUN: tuple[Unrun, ...] = ()
