"""A placeholder node through ``torch.onnx.export(dynamo=False)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.onnx import symbolic_helper

from rewriter.torch.legacy_types import result_sizes

if TYPE_CHECKING:
    from rewriter.torch.arguments import Attribute
    from rewriter.torch.function import Application


def emit_legacy(g: Any, application: Application, values: tuple[Any, ...]) -> Any:
    """One node in the TorchScript exporter's graph; ``values`` are the inputs that are given."""
    remaining = iter(values)
    inputs = [next(remaining) if given else _omitted(g) for given in application.given]
    attributes = {f"{name}_{_suffix(value)}": value for name, value in application.attributes.items()}
    made = g.op(application.operator.qualified_name, *inputs, **attributes, outputs=len(application.results))
    outputs = made if len(application.results) > 1 else (made,)
    sizes = result_sizes(application, [_sizes(value) for value in values])
    for output, result, known in zip(outputs, application.results, sizes, strict=True):
        kind = torch._C.TensorType.get().with_dtype(result.dtype)
        output.setType(kind.with_sizes(known))
    return made


def _omitted(g: Any) -> Any:
    """An input that is not given: the empty name in the file."""
    return symbolic_helper._optional_input_placeholder_tensor(g)  # type: ignore[no-untyped-call]


def _sizes(value: Any) -> list[int | None] | None:
    """The sizes of a value as the exporter knows them, None for an unknown rank."""
    kind = value.type()
    return list(kind.varyingSizes()) if kind.kind() == "TensorType" and kind.dim() is not None else None


def _suffix(value: Attribute) -> str:
    """The exporter's own letter for an attribute's type; it tells lists from scalars itself."""
    item = value[0] if isinstance(value, list) else value
    return {int: "i", float: "f", str: "s"}[type(item)]
