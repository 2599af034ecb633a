"""Systematic mutations of what a pass builds: one small change to the nodes or constants of an expansion."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper

from rewriter.graph import expanding
from rewriter.placeholder.expand import Expansion, expand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

#: A change to copies of the nodes and constants, made in place.
Change = "Callable[[Expansion], None]"

#: Operators whose two operands (by position) are not alike.
_ORDERED = {
    **dict.fromkeys(
        ("Sub", "Div", "Pow", "Mod", "MatMul", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"), (0, 1)
    ),
    "Where": (1, 2),
    "Concat": (0, 1),
    "Gather": (0, 1),
}
#: What one writes by mistake.
_CONFUSED = {
    "Add": "Sub",
    "Sub": "Add",
    "Mul": "Div",
    "Div": "Mul",
    "Floor": "Ceil",
    "Ceil": "Floor",
    "Round": "Floor",
    "Less": "LessOrEqual",
    "LessOrEqual": "Less",
    "Greater": "GreaterOrEqual",
    "GreaterOrEqual": "Greater",
    "Min": "Max",
    "Max": "Min",
    "And": "Or",
    "Or": "And",
    "ReduceMean": "ReduceSum",
    "ReduceSum": "ReduceMean",
    "ReduceMax": "ReduceMin",
    "ReduceMin": "ReduceMax",
    "Sin": "Cos",
    "Cos": "Sin",
    "Relu": "Abs",
    "Abs": "Neg",
    "Tanh": "Sigmoid",
    "Sigmoid": "Tanh",
    "ArgMax": "ArgMin",
}
#: Constants up to here are epsilons: with them forgotten, most inputs give the same.
_EPSILON = 1e-3
#: Elements of a constant that are changed: the first and the last.
_ENDS = (0, -1)


@dataclass(frozen=True)
class Mutant:
    """One change; ``number`` is the node or constant that it is made to."""

    kind: str
    number: int
    detail: str
    change: Callable[[Expansion], None]

    def __str__(self) -> str:
        return f"{self.kind} [{self.number}] {self.detail}"

    def applied(self, to: Expansion) -> Expansion:
        """A changed copy.  Nothing is said of types any more, as if a pass had built it so."""
        copy = replace(
            to,
            nodes=[_copy(node) for node in to.nodes],
            initializers=[_copy_tensor(tensor) for tensor in to.initializers],
            outputs=list(to.outputs),
            output_types=[None] * len(to.output_types),
            types={},
        )
        self.change(copy)
        return copy

    def installed(self) -> AbstractContextManager[object]:
        """While this lasts, every placeholder is replaced by the changed expansion."""

        def changed(*args: object, **kwargs: object) -> Expansion:
            return self.applied(expand(*args, **kwargs))  # type: ignore[arg-type]

        return patch.object(expanding, "expand", changed)


def mutants(expansion: Expansion) -> Iterator[Mutant]:
    """Every change that is known, in the order of the nodes and constants."""
    for number, node in enumerate(expansion.nodes):
        yield from _of_node(number, node, expansion)
    for number, tensor in enumerate(expansion.initializers):
        yield from _of_constant(number, tensor)
    if len(set(expansion.outputs) - {""}) > 1:
        yield Mutant("output order swapped", 0, "", lambda e: e.outputs.reverse())


def _of_node(number: int, node: NodeProto, expansion: Expansion) -> Iterator[Mutant]:
    places = _ORDERED.get(node.op_type)
    if places is not None and len(node.input) > max(places) and len({node.input[i] for i in places}) > 1:
        yield Mutant("swapped inputs", number, node.op_type, lambda e: _swap(e.nodes[number], *places))
    if node.op_type in _CONFUSED:
        other = _CONFUSED[node.op_type]
        yield Mutant(
            "wrong operator", number, f"{node.op_type} → {other}", lambda e: _retype(e.nodes[number], other)
        )
    if len(node.output) == 1 and node.input and node.input[0]:
        known = [expansion.types.get(name) for name in (node.input[0], node.output[0])]
        if (
            None in known
            or known[0] == known[1]
            or node.op_type in ("Cast", "Clip", "Mul", "Add", "Sub", "Div")
        ):
            yield Mutant("dropped node", number, node.op_type, lambda e: _drop(e.nodes[number]))
    if len(node.input) > 2 and node.op_type not in ("Concat", "Where", "If", "Loop", "Max", "Min", "Sum"):
        yield Mutant("optional input dropped", number, node.op_type, lambda e: _pop(e.nodes[number]))
    for attribute in node.attribute:
        yield from _of_attribute(number, node.op_type, attribute.name, node)


def _of_attribute(number: int, op_type: str, name: str, node: NodeProto) -> Iterator[Mutant]:
    attribute = next(a for a in node.attribute if a.name == name)
    detail = f"{op_type}.{name}"
    kind = "wrong axis" if name in ("axis", "axes", "batch_dims") else "wrong attribute"

    def edit(change: Callable[[object], None]) -> Callable[[Expansion], None]:
        return lambda e: change(next(a for a in e.nodes[number].attribute if a.name == name))

    if attribute.type == 2 and name not in ("to", "saturate"):
        flag = name in (
            "keepdims",
            "exclusive",
            "reverse",
            "upper",
            "largest",
            "sorted",
            "fmod",
            "align_corners",
        )
        other = 1 - attribute.i if flag else attribute.i - 1 if attribute.i > 0 else attribute.i + 1
        yield Mutant(
            kind, number, f"{detail} {attribute.i} → {other}", edit(lambda a: setattr(a, "i", other))
        )
    elif attribute.type == 1:
        other = 0.0 if 0 < abs(attribute.f) <= _EPSILON else attribute.f * 1.01 + 0.01
        yield Mutant(
            kind, number, f"{detail} {attribute.f:g} → {other:g}", edit(lambda a: setattr(a, "f", other))
        )
    elif attribute.type == 7 and len(attribute.ints) > 1 and name == "perm":
        yield Mutant("wrong axis", number, detail, edit(lambda a: _rotate(a.ints)))
    elif attribute.type == 7 and attribute.ints:
        yield Mutant(kind, number, f"{detail}[0]", edit(lambda a: _bump(a.ints)))
    elif attribute.type == 3:
        yield Mutant("attribute dropped", number, detail, lambda e: _without(e.nodes[number], name))


def _of_constant(number: int, tensor: TensorProto) -> Iterator[Mutant]:
    array = numpy_helper.to_array(tensor)
    if array.size == 0:
        return

    def put(make: Callable[[np.ndarray], np.ndarray]) -> Callable[[Expansion], None]:
        def change(e: Expansion) -> None:
            old = numpy_helper.to_array(e.initializers[number])
            e.initializers[number].CopyFrom(numpy_helper.from_array(make(old.copy()), tensor.name))

        return change

    def at(place: int, make: Callable[[np.generic], object]) -> Callable[[np.ndarray], np.ndarray]:
        def change(old: np.ndarray) -> np.ndarray:
            flat = old.reshape(-1)
            flat[place] = make(flat[place])
            return flat.reshape(old.shape)

        return change

    name = f"{array.dtype}{list(array.shape)}"
    for place in _ENDS[: array.size]:
        value = array.reshape(-1)[place]
        if array.dtype.kind in "iu":
            for step in (1, -1):
                if value in (np.iinfo(array.dtype).max, np.iinfo(array.dtype).min):
                    continue  # stands for "to the end"
                yield Mutant(
                    "off by one",
                    number,
                    f"{name}[{place}] {value} {step:+d}",
                    put(at(place, lambda v, s=step: v + s)),
                )
        elif array.dtype.kind == "f":
            tiny = 0 < abs(value) <= _EPSILON
            made = (
                [("epsilon forgotten", 0.0)]
                if tiny
                else [("wrong constant", float(value) * 1.01 + (0.01 if not value else 0.0))]
            )
            if value and not tiny:
                made.append(("sign", -float(value)))
            for kind, other in made:
                yield Mutant(
                    kind,
                    number,
                    f"{name}[{place}] {value:g} → {other:g}",
                    put(at(place, lambda v, o=other: o)),
                )
        elif array.dtype == bool:
            yield Mutant(
                "wrong constant", number, f"{name}[{place}] flipped", put(at(place, lambda v: not v))
            )
    wrong = {
        "int64": "int32",
        "int32": "int64",
        "float32": "float64",
        "float64": "float32",
        "float16": "float32",
    }
    if str(array.dtype) in wrong:
        other_type = wrong[str(array.dtype)]
        yield Mutant(
            "wrong dtype constant", number, f"{name} → {other_type}", put(lambda old: old.astype(other_type))
        )
    if array.ndim and array.shape[0] > 1:
        yield Mutant("bytes shifted", number, name, put(lambda old: np.roll(old, 1, axis=0)))
        yield Mutant("wrong broadcast", number, name, put(lambda old: old[:1]))


# --- changes -----------------------------------------------------------------------------------------------------


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _copy_tensor(tensor: TensorProto) -> TensorProto:
    copy = TensorProto()
    copy.CopyFrom(tensor)
    return copy


def _swap(node: NodeProto, i: int, j: int) -> None:
    node.input[i], node.input[j] = node.input[j], node.input[i]


def _retype(node: NodeProto, op_type: str) -> None:
    node.op_type = op_type


def _drop(node: NodeProto) -> None:
    node.op_type, node.domain = "Identity", ""
    del node.input[1:]
    del node.attribute[:]


def _pop(node: NodeProto) -> None:
    del node.input[-1]


def _without(node: NodeProto, name: str) -> None:
    kept = [_attribute for _attribute in node.attribute if _attribute.name != name]
    copies = NodeProto()
    copies.attribute.extend(kept)
    del node.attribute[:]
    node.attribute.extend(copies.attribute)


def _rotate(values: object) -> None:
    rolled = [*values[1:], values[0]]  # type: ignore[index]
    del values[:]  # type: ignore[attr-defined]
    values.extend(rolled)  # type: ignore[attr-defined]


def _bump(values: object) -> None:
    values[0] += -1 if values[0] > 0 else 1  # type: ignore[index]
