"""OpInfo's entries for the passes of passes/attention/; see the package's docstring."""

from tests.oracles.run import Result
from tests.oracles.table import Row, Unrun

ROWS: tuple[Row, ...] = (
    Row("scaled_dot_product_attention", ("nn.functional.scaled_dot_product_attention",)),
)

UNRUN: tuple[Unrun, ...] = (
    Unrun(
        "scaled_dot_product_attention",
        "nn.functional.scaled_dot_product_attention",
        Result.REFUSED,
        "dropout_p=0.5: random zeros",
        samples=(2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23),
    ),
)
