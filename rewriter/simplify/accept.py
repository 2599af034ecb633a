"""Whether a simplified model may be delivered.

Each check raises :class:`Refused` with a reason for people.  None of them trusts onnxsim: they look at the finished
model, compared with the one before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import onnx
from onnx import TensorProto, ValueInfoProto

from rewriter.simplify import hiding, walk
from rewriter.simplify.optimizers import MAY_APPEAR
from rewriter.simplify.prepare import CannotPrepare, prepare
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx import GraphProto, ModelProto

    from rewriter.storage import ModelFile

#: How much larger the file may be than it was, in per cent.
GROWTH: Final = 5


class Refused(Exception):  # noqa: N818  (an outcome that the caller turns into a reason, not a user's error)
    """The simplified model is not delivered.  ``growth`` says that it is right, only too large."""

    def __init__(self, reason: str, *, growth: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.growth = growth


@dataclass(frozen=True)
class Size:
    """``nodes`` counts those in bodies, not those in functions; ``bytes`` is the file's, weights included."""

    nodes: int
    bytes: int


def measure(model: ModelProto, file: ModelFile) -> Size:
    nodes = sum(len(graph.node) for graph in walk.graphs(model.graph))
    withheld = sum(
        file.nbytes(tensor)
        for tensor in walk.tensors(model.graph)
        if tensor.data_location == TensorProto.EXTERNAL
    )
    return Size(nodes, model.ByteSize() + withheld)


def check(before: ModelProto, after: ModelProto, file: ModelFile) -> None:
    """Everything but the values.  Drops those value_info entries of ``after`` that inference contradicts.

    Raises:
        Refused: the first thing that is wrong.
    """
    check_interface(before, after)
    check_operators(before, after)
    check_size(measure(before, file), measure(after, file))
    types = check_validity(before, after, file)
    check_types(after, types)
    for graph in walk.graphs(after.graph):
        _value_info(graph, types)


def check_target(
    before: ModelProto, after: ModelProto, lacks: Callable[[ModelProto], set[str]] | None
) -> None:
    """Nothing may come that the target lacks."""
    if lacks is None:
        return
    for what in sorted(lacks(after) - lacks(before)):
        raise Refused(f"operators: the target lacks {what}")


def check_interface(before: ModelProto, after: ModelProto) -> None:
    for what in ("input", "output"):
        ours, theirs = getattr(before.graph, what), getattr(after.graph, what)
        if list(ours) != list(theirs):
            raise Refused(f"interface: graph {what}s changed")
    available = walk.defined(after.graph)
    for value in after.graph.output:
        if value.name not in available:
            raise Refused(f"interface: nothing computes the output '{value.name}'")


def check_operators(before: ModelProto, after: ModelProto) -> None:
    old, new = _operators(before.graph), _operators(after.graph)
    for domain, op_type in sorted(new.keys() - old.keys()):
        if domain or op_type not in MAY_APPEAR:
            name = f"{domain}::{op_type}" if domain else op_type
            raise Refused(f"operators: {name} was not there before")
    for domain, op_type in sorted(new):
        if domain and new[domain, op_type] > old[domain, op_type]:
            raise Refused(f"operators: more nodes of {domain}::{op_type} than before")


def _operators(graph: GraphProto) -> Counter[tuple[str, str]]:
    return Counter(
        ("" if hiding.is_default_domain(node.domain) else node.domain, node.op_type)
        for scope in walk.graphs(graph)
        for node in scope.node
    )


def check_size(before: Size, after: Size) -> None:
    if after.nodes > before.nodes:
        raise Refused(f"size: {before.nodes} nodes became {after.nodes}", growth=True)
    if 100 * after.bytes > (100 + GROWTH) * before.bytes:
        raise Refused(f"size: {before.bytes} bytes became {after.bytes}", growth=True)


def check_validity(before: ModelProto, after: ModelProto, file: ModelFile) -> dict[str, TensorType | None]:
    """The checker's word, and the types that strict inference finds.

    A model that strict inference refused before is held to the checker only.
    """
    try:
        return _inferred(after, file, strict=True)
    except Refused:
        try:
            _inferred(before, file, strict=True)
        except Refused:
            return _inferred(after, file, strict=False)
        raise


def _inferred(model: ModelProto, file: ModelFile, *, strict: bool) -> dict[str, TensorType | None]:
    """Types by name; None for one that scopes use for values of different types."""
    try:
        # Weights as typed inputs, foreign nodes and functions hidden: what the checker cannot look into.
        view = prepare(model, file).model
        onnx.checker.check_model(view)
        view = onnx.shape_inference.infer_shapes(view, check_type=strict, strict_mode=strict)
    except CannotPrepare as error:
        raise Refused(f"checker: {error}") from error
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        raise Refused(f"checker: {_first_line(error)}") from error
    types: dict[str, TensorType | None] = {}
    for graph in walk.graphs(view.graph):
        for value in graph.value_info:
            kind = TensorType.from_proto(value.type)
            if kind is not None:
                types[value.name] = kind if types.get(value.name, kind) == kind else None
    # What inference says of an output is merged into its declaration, which was sent without sizes.
    for value in view.graph.output:
        types[value.name] = TensorType.from_proto(value.type)
    return types


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[
        :300
    ]


def check_types(model: ModelProto, types: dict[str, TensorType | None]) -> None:
    for value in model.graph.output:
        if not _fits(value, types):
            raise Refused(f"interface: '{value.name}' is now {types[value.name]}")


def _value_info(graph: GraphProto, types: dict[str, TensorType | None]) -> None:
    """Keeps the entries of values that there still are, and that are what it says."""
    if not graph.value_info:
        return
    names = walk.defined(graph)
    kept = [value for value in graph.value_info if value.name in names and _fits(value, types)]
    if len(kept) < len(graph.value_info):
        copies = onnx.GraphProto()
        copies.value_info.extend(kept)
        graph.ClearField("value_info")
        graph.value_info.MergeFrom(copies.value_info)


def _fits(value: ValueInfoProto, types: dict[str, TensorType | None]) -> bool:
    """Whether what is declared does not contradict what was inferred."""
    declared, found = TensorType.from_proto(value.type), types.get(value.name)
    if declared is None or found is None:
        return True
    if declared.dtype != found.dtype:
        return False
    if declared.shape is None or found.shape is None:
        return True
    return len(declared.shape) == len(found.shape) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int))
        for a, b in zip(declared.shape, found.shape, strict=True)
    )
