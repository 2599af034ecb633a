"""Operators inside a reference that a pass decomposes: they become placeholders.

A pass for one operator so serves everything that is built on it, and stands in where the exporter's own translation is
missing or wrong.  During the translation such an operator is one node of :data:`DOMAIN`; when the nodes are recorded it
takes the form that the exporters' fall-through writes, all arguments of the schema as inputs, which passes know.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.errors import DerivationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from onnx import NodeProto

    from rewriter.placeholder.builder import Builder
    from rewriter.placeholder.contract import Placeholder
    from rewriter.placeholder.value import Value
    from rewriter.types import TensorType

#: The domain of the nodes during the translation.
DOMAIN = "rewriter.stop"

#: The domain that they have as placeholders.
ATEN = "org.pytorch.aten"


def stops(passes: Iterable[Placeholder]) -> tuple[str, ...]:
    """The names of the operators of ``aten`` that one of ``passes`` takes."""
    found = {
        pattern.removeprefix("aten::")
        for placeholder in passes
        for pattern in placeholder.matches
        if pattern.startswith("aten::") and not pattern.endswith("_")
    }
    return tuple(sorted(found))


@functools.cache
def table(names: tuple[str, ...]) -> Mapping[Any, Callable[..., Any]]:
    """What the functional overloads of the operators become, for ``ExportedProgram.run_decompositions``."""
    import torch

    found: dict[Any, Callable[..., Any]] = {}
    for name in names:
        packet = getattr(torch.ops.aten, name, None)
        for key in _overloads(packet):
            overload = getattr(packet, key)
            schema = overload._schema
            if not schema.is_mutable and all("Tensor" in str(item.type) for item in schema.returns):
                found[overload] = functools.partial(_placeholder, overload)
    return found


def _overloads(packet: Any) -> list[str]:
    import torch

    return packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else []  # type: ignore[no-untyped-call]


def _placeholder(overload: Any, *positional: Any, **named: Any) -> Any:
    """The operator as one node, in the place of its decomposition."""
    import torch
    from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
    from torch.utils._pytree import tree_leaves

    with disable_proxy_modes_tracing():
        results = _results(overload, positional, named)
    several = isinstance(results, (tuple, list))
    made = [results] if not several else list(results)
    if any(
        item.is_complex() for item in tree_leaves((positional, named, made)) if isinstance(item, torch.Tensor)
    ):
        return NotImplemented  # ONNX has no complex tensors: the exporter's own functions carry them as real ones
    tensors, arguments = _encoded(overload, positional, named)
    nodes = torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::{overload._schema.name.partition('::')[2]}",
        tensors,
        {"arguments": arguments},
        dtypes=[item.dtype for item in made],
        shapes=[item.shape for item in made],
        version=1,
    )
    return type(results)(nodes) if several else nodes[0]


def _results(overload: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What the operator itself gives, of which only types matter here.

    An operator that PyTorch composes of others would be led back to :func:`_placeholder` by the table.
    """
    import torch

    key = torch._C.DispatchKey.CompositeImplicitAutograd
    if torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key.name):
        return overload._op_dk(key, *positional, **named)
    return overload(*positional, **named)


def _encoded(overload: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], str]:
    """The tensors among the arguments, and all of them as text in the order of the schema."""
    import torch

    tensors: list[Any] = []

    def encode(value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            value = torch.ops.aten.scalar_tensor.default(value, dtype=torch.int64)
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        if isinstance(value, (list, tuple)):
            return [encode(item) for item in value]
        if isinstance(value, torch.dtype):
            from rewriter.derive.aten import number_of

            return number_of(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        return None  # a layout, a device or a format of memory means nothing in ONNX

    formals = overload._schema.arguments
    given = dict(zip((item.name for item in formals), positional, strict=False)) | dict(named)
    ordered = [
        encode(given[item.name] if item.name in given else item.default_value)  # noqa: SIM401  (not all have one)
        for item in formals
    ]
    return tensors, json.dumps(ordered)


def record(
    types: Mapping[str, TensorType], g: Builder, node: NodeProto, inputs: Sequence[Value | None]
) -> Sequence[Value]:
    """A node of :data:`DOMAIN` as a placeholder of ``aten``; ``types`` are those of the translated model's values."""

    made = [
        g.const(item) if isinstance(item, np.ndarray) else None if item is None else inputs[item]
        for item in arguments(node)
    ]
    results = g.op(node.op_type, *made, outputs=len(node.output), domain=ATEN)
    several: Sequence[Value] = results if len(node.output) != 1 else (results,)
    return [
        g.declared(result, types[name]) if name in types else result
        for result, name in zip(several, node.output, strict=True)
    ]


def arguments(node: NodeProto) -> list[Any]:
    """The arguments of a node of :data:`DOMAIN`, in the order of the schema: arrays, the number of an input, or None.

    DerivationError where one is a list of tensors, which no input of ONNX is.
    """

    def value(item: Any) -> Any:
        if item is None or isinstance(item, dict):
            return None if item is None else item["tensor"]
        if isinstance(item, list):
            if any(isinstance(part, (dict, type(None))) for part in item):
                raise DerivationError(f"a list of tensors is given to {node.op_type}")
            return np.asarray(
                item, dtype="float64" if any(isinstance(part, float) for part in item) else "int64"
            )
        if isinstance(item, str):
            return np.asarray(item.encode(), dtype=object)
        return np.asarray(item, dtype={bool: "bool", int: "int64", float: "float64"}[type(item)])

    text = next(attribute.s for attribute in node.attribute if attribute.name == "arguments")
    return [value(item) for item in json.loads(text)]
