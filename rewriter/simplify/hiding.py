"""Which nodes onnxsim may not understand.

It optimises by operator type alone (``com.example::Identity`` as well as ``Identity``), and on some standard
operators it is wrong or crashes.  Such nodes are sent under a type of their own, without attributes, and take their
own again in the result; two of them are never alike, so that nothing merges them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from onnx import AttributeProto, TensorProto, defs

from rewriter.simplify.walk import bodies

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx import GraphProto, NodeProto

#: Payloads up to this many bytes are sent; a larger one is a weight.  Shapes, axes, scalars and channel constants
#: are smaller, and what is folded from them may grow no larger either.
LIMIT: Final = 1024

#: Element types that onnxsim's representation holds and onnxruntime has the kernels to fold.
FOLDABLE: Final = frozenset(
    {
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.DOUBLE,
        TensorProto.BOOL,
        TensorProto.INT8,
        TensorProto.INT16,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.UINT8,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
    }
)

#: Draw anew each time they run: two of them are not a common subexpression, and none is a constant.
_RANDOM: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

_WINDOWED: Final = ("strides", "dilations", "kernel_shape")


def is_default_domain(domain: str) -> bool:
    return domain in ("", "ai.onnx")


@lru_cache(maxsize=4096)
def is_standard(op_type: str, opset: int) -> bool:
    """Whether ONNX's default domain has the operator at ``opset``, not deprecated."""
    if not defs.has(op_type, max_inclusive_version=opset):
        return False
    return not defs.get_schema(op_type, max_inclusive_version=opset).deprecated


def must_hide(node: NodeProto, opset: int, is_weight: Callable[[TensorProto], bool]) -> bool:
    """Whether ``node`` is sent under a disguise.  ``is_weight`` tells the tensors that are not sent.

    Other domains, ai.onnx.ml among them, are all hidden: nothing is gained by showing them, and inlining a branch
    makes onnxsim forget them.
    """
    if not is_default_domain(node.domain) or not is_standard(node.op_type, opset):
        return True
    if node.op_type in _RANDOM:
        return True
    if node.op_type == "Dropout" and (len(node.input) > 2 and node.input[2]):
        return True
    for attribute in node.attribute:
        # Passes and folding ignore it.  (Where it makes the node an identity, `prepare` says so instead.)
        if attribute.name == "noop_with_empty_axes" and attribute.i:
            return True
        if attribute.name in _WINDOWED and any(size < 1 for size in attribute.ints):
            return True
        if _holds_weight(attribute, is_weight):
            return True
    # An If whose condition is constant is inlined, and its nodes lose domain and name.
    return node.op_type == "If" and any(_hides(inner, opset, is_weight) for inner in bodies(node))


def _hides(graph: GraphProto, opset: int, is_weight: Callable[[TensorProto], bool]) -> bool:
    """Whether anything in ``graph`` or below it is hidden or not sent."""
    if any(map(is_weight, graph.initializer)) or graph.sparse_initializer:
        return True
    for node in graph.node:
        if must_hide(node, opset, is_weight):
            return True
        # An If has just answered for its branches; asking again would double the work at every level.
        if node.op_type != "If" and any(_hides(body, opset, is_weight) for body in bodies(node)):
            return True
    return False


def _holds_weight(attribute: AttributeProto, is_weight: Callable[[TensorProto], bool]) -> bool:
    if attribute.HasField("t") and is_weight(attribute.t):
        return True
    if attribute.HasField("sparse_tensor") or attribute.sparse_tensors or attribute.HasField("tp"):
        return True
    if attribute.type_protos or attribute.ref_attr_name or any(map(is_weight, attribute.tensors)):
        return True
    if attribute.name in ("value_string", "value_strings"):
        return True
    return 8 * max(len(attribute.ints), len(attribute.floats)) > LIMIT


def is_noop_reduce(node: NodeProto, empty: Callable[[str], bool]) -> bool:
    """Whether ``node`` is a Reduce without axes that returns its input.

    ``empty`` tells the names of constants without elements.  ReduceL1 and the like are not meant: whether they still
    apply their function elementwise has changed between versions of ONNX.
    """
    if node.op_type not in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"):
        return False
    named = {attribute.name: attribute.i for attribute in node.attribute}
    axes = node.input[1] if len(node.input) > 1 else ""
    return bool(named.get("noop_with_empty_axes")) and "axes" not in named and (not axes or empty(axes))
