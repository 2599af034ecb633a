"""OpInfo's entries for the passes of passes/normalisation/; see the package's docstring."""

from __future__ import annotations

from typing import Any

from tests.oracles.run import Result
from tests.oracles.table import Row, Unrun


def _native_group_norm(sample: Any) -> dict[str, Any]:
    weight, bias, _, _, _, groups, eps = sample.args
    return {"x": sample.input, "num_groups": groups, "weight": weight, "bias": bias, "eps": eps}


def _instance_norm(sample: Any) -> dict[str, Any]:
    given = dict(sample.kwargs)
    given["bias"], given["weight"] = given.pop("bias", None), given.pop("weight", None)
    return {"x": sample.input, **given}


ROWS: tuple[Row, ...] = (Row("layer_norm", ("nn.functional.layer_norm", "native_layer_norm")),)

UNRUN: tuple[Unrun, ...] = (
    Unrun(
        "layer_norm",
        "native_layer_norm",
        Result.DIFFERS,
        "of a single element x - mean is 0; PyTorch's float16 kernel leaves its rounding",
        samples=(10, 11),
        dtypes=("float16",),
    ),
)
