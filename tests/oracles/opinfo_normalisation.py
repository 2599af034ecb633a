"""OpInfo's entries for the passes of passes/normalisation/; see the package's docstring."""

from __future__ import annotations

from typing import Any

from tests.oracles.table import Row, Unrun


def _native_group_norm(sample: Any) -> dict[str, Any]:
    weight, bias, _, _, _, groups, eps = sample.args
    return {"x": sample.input, "num_groups": groups, "weight": weight, "bias": bias, "eps": eps}


def _instance_norm(sample: Any) -> dict[str, Any]:
    given = dict(sample.kwargs)
    given["bias"], given["weight"] = given.pop("bias", None), given.pop("weight", None)
    return {"x": sample.input, **given}


ROWS: tuple[Row, ...] = (
    Row("layer_norm", ("nn.functional.layer_norm", "native_layer_norm")),
    Row("rms_norm", ("nn.functional.rms_norm",)),
    Row("group_norm", ("nn.functional.group_norm",)),
    Row("group_norm", ("native_group_norm",), adapt=_native_group_norm),
    Row("instance_norm", ("nn.functional.instance_norm",), adapt=_instance_norm),
)

UNRUN: tuple[Unrun, ...] = ()
