"""Attributes with a type: made from Python values, and held against the operator's schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, TensorProto, defs, numpy_helper

from rewriter.errors import DecompositionFault

if TYPE_CHECKING:
    from rewriter.placeholder.builder import Builder
    from rewriter.placeholder.value import Value

A = AttributeProto

_NAMES: dict[int, str] = {
    A.INT: "an int",
    A.FLOAT: "a float",
    A.STRING: "a string",
    A.TENSOR: "a tensor",
    A.GRAPH: "a graph",
    A.INTS: "ints",
    A.FLOATS: "floats",
    A.STRINGS: "strings",
    A.TENSORS: "tensors",
    A.GRAPHS: "graphs",
}
#: The suffixes by which `torch.onnx` names the type of an attribute.
SUFFIXES: dict[str, int] = {
    "i": A.INT,
    "f": A.FLOAT,
    "s": A.STRING,
    "t": A.TENSOR,
    "z": A.TENSOR,
    "is": A.INTS,
    "fs": A.FLOATS,
    "ss": A.STRINGS,
    "ts": A.TENSORS,
}
PLURAL: dict[int, int] = {A.INT: A.INTS, A.FLOAT: A.FLOATS, A.STRING: A.STRINGS, A.TENSOR: A.TENSORS}


def kind_name(kind: int) -> str:
    return _NAMES.get(kind) or str(A.AttributeType.Name(kind)).lower()


def make(name: str, kind: int, value: Any) -> AttributeProto:
    """``value`` as an attribute of type ``kind``; TypeError where it is none."""
    made = AttributeProto(name=name, type=kind)  # type: ignore[arg-type]
    if kind in PLURAL.values():
        if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, np.ndarray)):
            value = [value]
        single = next(one for one, plural in PLURAL.items() if plural == kind)
        parts = [make(name, single, item) for item in value]
        made.ints.extend(part.i for part in parts if single == A.INT)
        made.floats.extend(part.f for part in parts if single == A.FLOAT)
        made.strings.extend(part.s for part in parts if single == A.STRING)
        made.tensors.extend(part.t for part in parts if single == A.TENSOR)
    elif kind == A.INT:
        made.i = _integer(value)
    elif kind == A.FLOAT:
        if isinstance(value, str):
            raise TypeError(f"{value!r} is no number")
        made.f = float(value)
    elif kind == A.STRING:
        if not isinstance(value, (str, bytes)):
            raise TypeError(f"a {type(value).__name__} is no string")
        made.s = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    elif kind == A.TENSOR:
        made.t.CopyFrom(tensor(value))
    else:
        raise TypeError(f"{kind_name(kind)} cannot be given as a Python value")
    return made


def _integer(value: Any) -> int:
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        return int(value)
    if isinstance(value, (str, float, np.floating)):
        raise TypeError(f"{value!r} is no integer")
    # Enumerations: torch.onnx.TensorProtoDataType.
    return int(value.__index__() if hasattr(value, "__index__") else value.__int__())


def tensor(value: Any) -> TensorProto:
    """A tensor of torch, numpy or ONNX as a TensorProto; Python numbers and lists as `torch.tensor` reads them."""
    if isinstance(value, TensorProto):
        return value
    if hasattr(value, "detach"):
        from rewriter.execution.values import from_torch

        value = from_torch(value)
    elif not isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
        if value.dtype == np.float64:
            value = value.astype(np.float32)
    if np.asarray(value).dtype == object and not all(
        isinstance(v, (str, bytes)) for v in np.asarray(value).reshape(-1)
    ):
        raise TypeError(f"a {type(value).__name__} is no tensor")
    return numpy_helper.from_array(np.asarray(value))


def check_types(g: Builder, op_type: str, domain: str, attributes: Sequence[AttributeProto]) -> None:
    """DecompositionFault where an attribute has another type than the operator's schema says."""
    version = g.opset if not domain else g.domains.get(domain, 1)
    if not defs.has(op_type, version, domain):
        return
    known = defs.get_schema(op_type, version, domain).attributes
    for attribute in attributes:
        if attribute.name not in known:
            continue
        wanted = int(known[attribute.name].type.value)  # type: ignore[attr-defined]
        if wanted != attribute.type:
            raise DecompositionFault(
                f"attribute '{attribute.name}' of {op_type} is {kind_name(wanted)}, "
                f"{kind_name(attribute.type)} is given",
                where=g.where,
            )


def constant_of(g: Builder, attribute: AttributeProto) -> Value | None:
    """The value of a Constant operator by its attribute; None for a form that is no dense tensor."""
    if attribute.name == "value":
        return g.const(attribute.t)
    if attribute.name in ("value_int", "value_ints"):
        return g.const(
            np.asarray(attribute.i if attribute.name == "value_int" else list(attribute.ints), dtype=np.int64)
        )
    if attribute.name in ("value_float", "value_floats"):
        return g.const(
            np.asarray(
                attribute.f if attribute.name == "value_float" else list(attribute.floats), dtype=np.float32
            )
        )
    if attribute.name in ("value_string", "value_strings"):
        texts: Any = attribute.s if attribute.name == "value_string" else list(attribute.strings)
        return g.const(numpy_helper.from_array(np.asarray(texts, dtype=object)))
    return None
