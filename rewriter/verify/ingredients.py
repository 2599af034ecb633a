"""What a region is made of, for probes: its numbers, the integers that decide sizes, and its uniform constants."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from rewriter.domains import normal_domain
from rewriter.errors import RewriteError
from rewriter.execution.numbers import is_float
from rewriter.inputs.draw import generator
from rewriter.inputs.required import REQUIRED
from rewriter.placeholder.binding import Bound, Ref
from rewriter.placeholder.expand import expand
from rewriter.types import TensorType
from rewriter.verify.regions import outputs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnx import NodeProto

    from rewriter.decompose import Region
    from rewriter.execution.numbers import Array
    from rewriter.execution.weights import Weights

#: Constants of so many elements are numbers that values are compared with; and so many of them are tried.
_FEW, _NUMBERS = 4, 12
#: Numbers beyond are no thresholds but fillings of masks.
_LARGEST = 1e6
#: Elements of a constant that is drawn anew.
_MOST = 1 << 20
#: By operator, the inputs that decide how large something is, or how often something is done.
_COUNTS: Mapping[str, tuple[int, ...]] = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Loop": (0,),
    "OneHot": (1,),
    "Pad": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Tile": (1,),
    "TopK": (1,),
    "Upsample": (1,),
}


def numbers_of(region: Region, model: ModelProto, weights: Weights) -> list[float]:
    """The numbers that a region's values may be compared with: those of its nodes first, then its parameters."""
    found: dict[float, None] = {}
    for number in (*_in_nodes(model, weights), *_in_parameters(region.bound)):
        if np.isfinite(number) and abs(number) <= _LARGEST:
            found[float(number)] = None
    return list(found)[:_NUMBERS]


def _in_nodes(model: ModelProto, weights: Weights) -> Iterator[float]:
    tensors = list(model.graph.initializer)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.FLOAT:
                yield attribute.f
            elif attribute.type == AttributeProto.TENSOR:
                tensors.append(attribute.t)
    for tensor in tensors:
        if int(np.prod(tensor.dims, dtype=np.int64)) <= _FEW and tensor.data_type != TensorProto.STRING:
            array = weights.array(tensor)
            if is_float(array.dtype) and array.dtype.kind != "c":
                yield from (float(item) for item in array.reshape(-1))


def _in_parameters(bound: Bound) -> Iterator[float]:
    for argument in bound.arguments.values():
        if isinstance(argument, Ref):
            constant = argument.constant
            if constant is not None and constant.size <= _FEW and constant.dtype.kind in "iuf":
                yield from (float(item) for item in constant.reshape(-1))
        elif isinstance(argument, (int, float)) and not isinstance(argument, bool):
            yield float(argument)
        elif isinstance(argument, (list, tuple)) and len(argument) <= _FEW:
            yield from (float(item) for item in argument if isinstance(item, float))


def counts_of(model: ModelProto, feeds: Mapping[str, Array]) -> frozenset[str]:
    """The integer inputs from which sizes or numbers of rounds are computed, and those of one element."""
    wanted: set[str] = set()
    for node in reversed(model.graph.node):
        own = _COUNTS.get(node.op_type, ())
        if node.op_type in ("Shape", "Size"):
            continue
        whole = any(name in wanted for name in node.output)
        wanted |= {name for at, name in enumerate(node.input) if name and (whole or at in own)}
    has_bodies = any(a.type == AttributeProto.GRAPH for node in model.graph.node for a in node.attribute)
    return frozenset(
        name
        for name, array in feeds.items()
        if array.dtype.kind in "iu" and (name in wanted or array.size <= 1 or has_bodies or model.functions)
    )


def is_standard(node: NodeProto) -> bool:
    """Whether it is an operator of ONNX's own, which says nothing of NaN."""
    return not normal_domain(node.domain)


def required_of(node: NodeProto) -> frozenset[str]:
    """The inputs of an operator of ONNX's own whose values its documentation limits."""
    if not is_standard(node):
        return frozenset()
    return frozenset(name for at, name in enumerate(node.input) if (node.op_type, at) in REQUIRED)


def redrawn(
    region: Region, feeds: Mapping[str, Array], seed: int
) -> tuple[ModelProto, Bound, dict[str, Array], list[str]] | None:
    """The region with its uniform constants drawn, expanded anew by its pass; None where it has none, or it fails.

    A model, the arguments there, what it is fed, and the names of its results.
    """
    site = region.site
    if site is None or region.match is None:
        return None
    uniform = {
        ref.name: ref.constant
        for ref in region.bound.refs()
        if ref.constant is not None and ref.name and _is_uniform(ref.constant)
    }
    named = {
        name: array
        for name, array in site.constants.items()
        if name in site.node.input and _is_uniform(array)
    }
    if not uniform or not named:
        return None
    constants = dict(site.constants)
    for position, (name, array) in enumerate(named.items()):
        constants[name] = _drawn(array, generator(seed, position, "uniform"))
    try:
        made = expand(
            region.placeholder,
            replace(site, constants=constants),
            match=region.match,
            force=region.decomposition,
        )
    except RewriteError:
        return None
    inputs: dict[str, TensorType] = {}
    given: dict[str, Array] = {}
    for old, new in zip(region.bound.refs(), made.bound.refs(), strict=True):
        if new.constant is None:
            if old.name not in feeds or new.name.startswith("%"):
                return None
            inputs[new.name] = TensorType(
                helper.np_dtype_to_tensor_dtype(feeds[old.name].dtype), feeds[old.name].shape
            )
            given[new.name] = feeds[old.name]
    names = [made.outputs[at] if name else "" for at, name in enumerate(outputs_of(region))]
    if any(name in inputs for name in names) or len(set(names) - {""}) < len([n for n in names if n]):
        return None
    tensors = list(made.initializers)
    known = {tensor.name for tensor in tensors} | inputs.keys()
    tensors += [
        numpy_helper.from_array(np.ascontiguousarray(array), name)
        for name, array in constants.items()
        if name in site.node.input and name not in known
    ]
    graph = helper.make_graph(
        made.nodes,
        "region",
        [helper.make_value_info(name, kind.to_proto()) for name, kind in inputs.items()],
        [ValueInfoProto(name=name) for name in names if name],
        tensors,
    )
    imports = {"": site.opset, **made.domains}
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in imports.items()],
        ir_version=site.ir_version,
    )
    return model, made.bound, given, names


def _is_uniform(array: Any) -> bool:
    return (
        isinstance(array, np.ndarray)
        and array.dtype.kind == "f"
        and 1 < array.size <= _MOST
        and bool((array == array.reshape(-1)[0]).all())
    )


def _drawn(array: Array, rng: np.random.Generator) -> Array:
    """Numbers of the sign of the one that stands there: a variance stays positive."""
    value = float(array.reshape(-1)[0])
    if value == 0:
        return rng.standard_normal(array.shape).astype(array.dtype)
    return (value * rng.uniform(0.5, 1.5, array.shape)).astype(array.dtype)
