"""What a model promises to its callers: names, order, types and declared sizes of its inputs and outputs.

The TorchScript exporter gives sizes that it lost behind an opaque node a name of its own making: the operator, the
value and the axis (``Reluy_dim_0``, ``Roll/Roll_output_0_dim_1``, ``Add23_dim_0``).  Such a name says nothing, and
shape inference keeps it if it stays.  It is taken for invented only if

- no input of the main graph has a size of that name (what a caller chooses is never invented), and
- it reads ``<operator><value>_dim_<axis>``, where the operator is one of the model's or of ONNX, and the value is
  one of the model's, or a number (torch's own numbering, before the values were given names), or the very value
  declared is made by that operator at that axis (it was renamed after export).

Everything else was given by a user (``batch``, ``out_len``) or follows from the inputs (dynamo's ``s77``,
``2*batch``), and stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx import FunctionProto, TypeProto

from rewriter.domains import standard_operators
from rewriter.errors import InterfaceChangedError
from rewriter.graph.scopes import text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from onnx import ModelProto, TensorShapeProto, ValueInfoProto

    from rewriter.graph.scopes import Scope, ScopeRef
    from rewriter.types import Dim, TensorType

_INVENTED = re.compile(r"^(?P<head>.+)_dim_(?P<axis>\d+)$", re.DOTALL)


@dataclass
class InventedDim:
    """A size whose name the exporter made up, and what stands there now."""

    scope: str
    value: str
    axis: int
    name: str
    #: Where ``scope`` is found.
    ref: ScopeRef
    #: The inferred size or its name; None where it has no name any more.
    replaced_by: Dim = None

    @property
    def change(self) -> str:
        """What became of it, in words."""
        now = "left without a name" if self.replaced_by is None else f"now {self.replaced_by}"
        return f"axis {self.axis}: '{self.name}' {now}"

    def __str__(self) -> str:
        return f"'{self.value}' {self.change}"


@dataclass(frozen=True)
class Interface:
    """Inputs and outputs as they were, to be compared with what became of them."""

    inputs: tuple[tuple[str, bytes], ...]
    outputs: tuple[tuple[str, bytes], ...]

    @classmethod
    def of(cls, model: ModelProto) -> Interface:
        return cls(_frozen(model.graph.input), _frozen(model.graph.output))

    def check(self, model: ModelProto) -> None:
        """InterfaceChangedError where an input or output of ``model`` has another name, place or type."""
        now = Interface.of(model)
        for what, before, after in (
            ("input", self.inputs, now.inputs),
            ("output", self.outputs, now.outputs),
        ):
            names = [[text(name) for name, _ in side] for side in (before, after)]
            if names[0] != names[1]:
                raise InterfaceChangedError(
                    f"the model's {what}s were {', '.join(names[0]) or 'none'} and are {', '.join(names[1]) or 'none'}"
                )
            for (name, old), (_, new) in zip(before, after, strict=True):
                if old != new:
                    raise InterfaceChangedError(
                        f"{what} '{text(name)}' was declared {_readable(old)} and is {_readable(new)}"
                    )


def _frozen(values: Sequence[ValueInfoProto]) -> tuple[tuple[str, bytes], ...]:
    return tuple((value.name, value.type.SerializeToString(deterministic=True)) for value in values)


def _readable(raw: bytes) -> str:
    from rewriter.types import TensorType

    proto = TypeProto.FromString(raw)
    known = TensorType.from_proto(proto)
    return str(known) if known is not None else (proto.WhichOneof("value") or "without a type")


# --- dims that the exporter invented ----------------------------------------------------------------------------


def input_symbols(model: ModelProto) -> frozenset[str]:
    """The names of sizes that the inputs of the main graph declare."""
    return frozenset(
        dim.dim_param for value in model.graph.input for _, dim in dims_of(value.type) if dim.dim_param
    )


def forget_invented_dims(model: ModelProto, scopes: Iterable[Scope]) -> list[InventedDim]:
    """Clear every invented name in ``scopes``; returns what was cleared, in order.  Cheap where there is none."""
    suspects: list[tuple[Scope, str, int, TensorShapeProto.Dimension]] = []
    scopes = list(scopes)
    for scope in scopes:
        for value in _declared(scope):
            for axis, dim in dims_of(value.type):
                if isinstance(dim.dim_param, str) and "_dim_" in dim.dim_param:
                    suspects.append((scope, value.name, axis, dim))
    if not suspects:
        return []
    given = input_symbols(model)
    producers: dict[str, str] = {}
    for scope in scopes:
        for node in scope.graph.node:
            for output in node.output:
                producers[output] = node.op_type
    operators = standard_operators() | set(producers.values())
    found: list[InventedDim] = []
    for scope, value_name, axis, dim in suspects:
        name = dim.dim_param
        if name not in given and _is_invented(name, value_name, axis, producers, operators):
            found.append(InventedDim(scope.path, text(value_name), axis, name, scope.ref))
            dim.ClearField("dim_param")
    return found


def _is_invented(
    name: str, value: str, axis: int, producers: Mapping[str, str], operators: frozenset[str]
) -> bool:
    match = _INVENTED.match(name)
    if match is None:
        return False
    head = match["head"]
    for cut in range(1, len(head)):
        operator, rest = head[:cut], head[cut:]
        if operator not in operators:
            continue
        if rest.isdigit() or rest in producers:
            return True
        if producers.get(value) == operator and int(match["axis"]) == axis:
            return True
    return False


def name_invented_dims(
    invented: Sequence[InventedDim],
    scopes: Iterable[Scope],
    types: Callable[[Scope], Mapping[str, TensorType]],
    known: frozenset[str],
) -> None:
    """Put what inference found where a name was forgotten: a number, or the name of an input's size (``known``).

    ``types`` gives the inferred types in a scope.
    """
    wanted = {(dim.ref, dim.value, dim.axis): dim for dim in invented}
    places = {dim.ref for dim in invented}
    for scope in scopes:
        if scope.ref not in places:
            continue
        for value in _declared(scope):
            found = types(scope).get(value.name)
            for axis, dim in dims_of(value.type):
                entry = wanted.get((scope.ref, text(value.name), axis))
                if entry is None or dim.WhichOneof("value") or found is None or found.shape is None:
                    continue
                size = found.shape[axis] if axis < len(found.shape) else None
                if isinstance(size, int):
                    dim.dim_value = size
                elif size in known and size is not None:
                    dim.dim_param = size
                else:
                    continue
                entry.replaced_by = size


def renamed_outputs(invented: Iterable[InventedDim], model: ModelProto) -> dict[str, list[str]]:
    """Of each output of ``model`` that had invented dims, those dims in words."""
    found: dict[str, list[str]] = {text(output.name): [] for output in model.graph.output}
    for dim in invented:
        if dim.ref.is_main and dim.value in found:
            found[dim.value].append(dim.change)
    return {name: dims for name, dims in found.items() if dims}


def _declared(scope: Scope) -> Iterator[ValueInfoProto]:
    graph = scope.graph
    if not isinstance(graph, FunctionProto):
        if scope.parent is not None:
            yield from graph.input
        yield from graph.output
    yield from graph.value_info


def dims_of(proto: TypeProto) -> Iterator[tuple[int, TensorShapeProto.Dimension]]:
    """The sizes in a type, with their axes; those of the elements for sequences, optionals and maps."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        yield from enumerate(proto.tensor_type.shape.dim)
    elif kind == "sparse_tensor_type":
        yield from enumerate(proto.sparse_tensor_type.shape.dim)
    elif kind == "sequence_type":
        yield from dims_of(proto.sequence_type.elem_type)
    elif kind == "optional_type":
        yield from dims_of(proto.optional_type.elem_type)
    elif kind == "map_type":
        yield from dims_of(proto.map_type.value_type)
