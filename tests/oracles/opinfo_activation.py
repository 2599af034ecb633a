"""OpInfo's entries for the passes of passes/activation/; see the package's docstring."""

from tests.oracles.table import Row, Unrun

ROWS: tuple[Row, ...] = (
    Row("swish", ("nn.functional.silu",)),
    Row("mish", ("nn.functional.mish",)),
    Row("gelu", ("nn.functional.gelu",)),
    Row("hardswish", ("nn.functional.hardswish",)),
    Row("hardsigmoid", ("nn.functional.hardsigmoid",)),
    Row("softplus", ("nn.functional.softplus",)),
    Row("logsigmoid", ("nn.functional.logsigmoid",)),
    Row("elu", ("nn.functional.elu",)),
    Row("celu", ("nn.functional.celu",)),
    Row("selu", ("nn.functional.selu",)),
    Row("glu", ("nn.functional.glu",)),
)

UNRUN: tuple[Unrun, ...] = ()
