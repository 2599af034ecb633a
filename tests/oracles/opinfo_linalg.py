"""OpInfo's entries for the passes of passes/linalg/; see the package's docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracles.table import Row, Unrun

if TYPE_CHECKING:
    from collections.abc import Mapping


def _tolerances(sample: Any) -> Mapping[str, Any]:
    """Tolerances as tensors, which the export writes constants as."""
    import torch

    given = {name: value for name, value in sample.kwargs.items() if value is not None}
    for name in {"atol", "rtol"} & set(given):
        given[name] = torch.as_tensor(given[name])
    return {"A": sample.input} | given


def _product(sample: Any) -> Mapping[str, Any]:
    """The entry takes two factors of a matrix that is not of full rank."""
    return {"A": sample.input @ sample.args[0].mT}


ROWS: tuple[Row, ...] = (
    Row("cholesky", ("linalg.cholesky_ex", "linalg.cholesky", "cholesky")),
    Row("cholesky_inverse", ("cholesky_inverse",)),
    Row("cholesky_solve", ("cholesky_solve",)),
    Row("solve_triangular", ("linalg.solve_triangular",)),
    Row("lu_factor", ("linalg.lu_factor_ex", "linalg.lu_factor")),
    Row("lu", ("linalg.lu",)),
    Row("lu_solve", ("linalg.lu_solve",)),
    Row("lu_unpack", ("lu_unpack",)),
    Row("inverse", ("linalg.inv_ex", "linalg.inv")),
    Row("linalg_solve", ("linalg.solve",)),
    Row("det", ("linalg.det",)),
    Row("slogdet", ("linalg.slogdet",)),
    Row("qr", ("linalg.qr",)),
    Row("geqrf", ("geqrf",)),
    Row("ormqr", ("ormqr",)),
    Row("triangular_solve", ("triangular_solve",)),
    Row("eigh", ("linalg.eigh", "linalg.eigvalsh")),
    Row("pinv", ("linalg.pinv", "linalg.pinv.hermitian"), _tolerances),
    Row("pinv", ("linalg.pinv.singular",), _product),
    Row("logdet", ("logdet",)),
    Row("householder_product", ("linalg.householder_product",)),
    Row("matrix_exp", ("matrix_exp",)),
)

UNRUN: tuple[Unrun, ...] = ()
