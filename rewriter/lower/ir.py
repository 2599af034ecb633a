"""The IR version of a delivered model: what its opset and the features that it uses need, and what a target takes.

Without one asked for, it goes down to what runtimes of the target's opset read, and never below what the model needs;
where the opset needs a newer one, it goes up.  Only features that a reader cannot pass over count: a reader ignores
fields that it does not know (metadata of nodes, quantisation data), but not values or functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto, helper

from rewriter.domains import normal_domain
from rewriter.errors import TargetError
from rewriter.graph.opsets import all_nodes
from rewriter.graph.scopes import graphs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import GraphProto, ModelProto

    from rewriter.lower.target import Target

#: Every reader of an opset that is asked for takes this one.
_READ_BY_ALL = 8
#: First IR version of element types; others are in all that are served.
_TYPES: dict[int, int] = {
    TensorProto.FLOAT8E4M3FN: 9,
    TensorProto.FLOAT8E4M3FNUZ: 9,
    TensorProto.FLOAT8E5M2: 9,
    TensorProto.FLOAT8E5M2FNUZ: 9,
    TensorProto.UINT4: 10,
    TensorProto.INT4: 10,
    TensorProto.FLOAT4E2M1: 11,
    TensorProto.FLOAT8E8M0: 12,
    TensorProto.UINT2: 13,
    TensorProto.INT2: 13,
}


def settle(model: ModelProto, target: Target) -> int | None:
    """Give ``model`` its IR version; the one that it had where that changed.

    TargetError where the one asked for is below what the model needs.
    """
    before = int(model.ir_version)
    most = target.aim.max_ir
    if target.ir_version is None and most is not None:
        wanted = _within(model, target, most)
    elif target.ir_version is not None:
        needed, why = max(_features(model), default=(3, ""))
        if target.ir_version < needed:
            raise TargetError(
                f"IR version {target.ir_version} has no {why}",
                remedy=f"ask for {needed} or later, or for a model without",
            )
        wanted = target.ir_version
    elif target.opset is not None:
        needed = max([needed for needed, _ in _features(model)], default=3)
        of_opset = helper.find_min_ir_version_for(list(model.opset_import), ignore_unknown=True)
        wanted = max(needed, of_opset, min(before, max(_READ_BY_ALL, of_opset)))
    else:
        return None
    if wanted == before:
        return None
    model.ir_version = wanted
    return before


def _within(model: ModelProto, target: Target, most: int) -> int:
    """The model's own IR version, or the newest that the runtimes take; TargetError where it needs a newer one."""
    needed, why = max(_features(model), default=(3, ""))
    if needed > most:
        raise TargetError(
            f"{' and '.join(target.aim.names)} takes IR version {most}, which has no {why}",
            remedy="choose a newer runtime, or a model without",
        )
    of_opset = helper.find_min_ir_version_for(list(model.opset_import), ignore_unknown=True)
    return min(most, max(int(model.ir_version), of_opset))


def _features(model: ModelProto) -> Iterator[tuple[int, str]]:
    """What the model holds that came with an IR version, and that version."""
    graph = model.graph
    inputs = {value.name for value in graph.input}
    if any(tensor.name not in inputs for tensor in graph.initializer):
        yield 4, "initializer that is not an input of the graph"
    if graph.sparse_initializer:
        yield 6, "sparse initializer"
    if model.training_info:
        yield 7, "training graph"
    for function in model.functions:
        yield 8, "model-local function"
        if function.attribute_proto:
            yield 9, "default of a function's attribute"
        if function.overload:
            yield 10, "overload of a function"
    for version, name in {(_TYPES[kind], TensorProto.DataType.Name(kind)) for kind in _types(model)}:
        yield version, f"element type {name.lower()}"


def _types(model: ModelProto) -> set[int]:
    """The later element types that tensors and values of the model have."""
    found: set[int] = set()
    waiting: list[GraphProto] = [model.graph]
    waiting += [
        body for function in model.functions for node in function.node for _, _, body in graphs_of(node)
    ]
    while waiting:
        graph = waiting.pop()
        found.update(tensor.data_type for tensor in graph.initializer)
        for values in (graph.input, graph.output, graph.value_info):
            found.update(value.type.tensor_type.elem_type for value in values)
        waiting += [body for node in graph.node for _, _, body in graphs_of(node)]
    owners = [model.graph, *model.functions]
    for owner in owners:
        for node in all_nodes(owner):
            if node.op_type == "Cast" and not normal_domain(node.domain):
                found.update(a.i for a in node.attribute if a.name == "to")
            found.update(a.t.data_type for a in node.attribute if a.HasField("t"))
    return found & _TYPES.keys()
