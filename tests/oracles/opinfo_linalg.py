"""OpInfo's entries for the passes of passes/linalg/; see the package's docstring."""

from tests.oracles.table import Row, Unrun

ROWS: tuple[Row, ...] = (
    Row("cholesky", ("linalg.cholesky_ex",)),
    Row("cholesky_inverse", ("cholesky_inverse",)),
    Row("cholesky_solve", ("cholesky_solve",)),
    Row("solve_triangular", ("linalg.solve_triangular",)),
    Row("lu_factor", ("linalg.lu_factor_ex",)),
    Row("lu_unpack", ("lu_unpack",)),
    Row("inverse", ("linalg.inv_ex",)),
    Row("logdet", ("logdet",)),
    Row("householder_product", ("linalg.householder_product",)),
    Row("matrix_exp", ("matrix_exp",)),
)

UNRUN: tuple[Unrun, ...] = ()
