"""Passes written for one kind of input each: wrong ones that a default run must refuse, right ones that it must not.

Every entry is a reference in PyTorch, a decomposition, and the types of a model's inputs.  The cases of the pass are
those types, unless others are given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from rewriter.placeholder import Case, Placeholder, Value
from rewriter.placeholder.case import TensorSpec, f32

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

F, D, H = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16
I64, I32, B = TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL


@dataclass(frozen=True)
class Entry:
    """``inputs`` are (element type, shape) by position; names of dims are open."""

    name: str
    kind: str
    reference: Callable[..., Any]
    decompose: Callable[..., Any]
    inputs: tuple[tuple[int, tuple[int | str, ...]], ...]
    #: Initializers for the parameters after the inputs.
    constants: tuple[Any, ...] = ()
    cases: tuple[Case, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    finite: bool = False

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}".replace(" ", "-")

    def placeholder(self) -> Placeholder:
        count = len(self.inputs) + len(self.constants)
        cases = self.cases or (Case(*self._specs()),)
        members = {
            "matches": ("Tried",),
            "name": "tried",
            "finite": self.finite,
            "reference": _REFERENCES[count](self.reference),
            "decompose": _BODIES[count](self.decompose),
            "cases": lambda self: iter(cases),
        }
        return type("Tried", (Placeholder,), members)()

    def _specs(self) -> list[TensorSpec]:
        found = []
        for dtype, shape in self.inputs:
            sizes = [size if isinstance(size, int) else 3 + at for at, size in enumerate(shape)]
            name = np.dtype(helper.tensor_dtype_to_np_dtype(dtype)).name
            found.append(f32(*sizes) if dtype in (F, D, H) else TensorSpec(tuple(sizes), name))
        return [*found, *(f32(*np.shape(constant)) for constant in self.constants)]

    def model(self) -> ModelProto:
        names = [f"in{at}" for at in range(len(self.inputs))]
        tensors = [numpy_helper.from_array(np.asarray(c), f"c{at}") for at, c in enumerate(self.constants)]
        graph = helper.make_graph(
            [
                helper.make_node(
                    "Tried", [*names, *(t.name for t in tensors)], ["y"], domain="com.example", name="it"
                )
            ],
            "tried",
            [
                helper.make_tensor_value_info(name, dtype, shape)
                for name, (dtype, shape) in zip(names, self.inputs, strict=True)
            ],
            [helper.make_empty_tensor_value_info("y")],
            tensors,
        )
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _one(f: Callable[..., Any]) -> Callable[..., Any]:
    def decompose(self: Any, g: Any, x: Value) -> Any:
        return f(g, x)

    return decompose


def _two(f: Callable[..., Any]) -> Callable[..., Any]:
    def decompose(self: Any, g: Any, x: Value, y: Value) -> Any:
        return f(g, x, y)

    return decompose


def _three(f: Callable[..., Any]) -> Callable[..., Any]:
    def decompose(self: Any, g: Any, x: Value, y: Value, z: Value) -> Any:
        return f(g, x, y, z)

    return decompose


_BODIES = {1: _one, 2: _two, 3: _three}
_REFERENCES: Mapping[int, Callable[..., Any]] = {
    1: lambda f: lambda self, x: f(x),
    2: lambda f: lambda self, x, y: f(x, y),
    3: lambda f: lambda self, x, y, z: f(x, y, z),
}


def x(dtype: int, *shape: int | str) -> tuple[tuple[int, tuple[int | str, ...]], ...]:
    """One input."""
    return ((dtype, shape),)


# --- shorthands of decompositions -------------------------------------------------------------------------------------


def red(g: Any, op: str, v: Any, axis: int, keep: int = 1) -> Any:
    if op == "Sum":
        return g.op("ReduceSum", v, g.ints([axis]), keepdims_i=keep)
    return g.op(f"Reduce{op}", v, axes_i=[axis], keepdims_i=keep)


def cast(g: Any, v: Any, to: int) -> Any:
    return g.op("Cast", v, to_i=to)


def where(g: Any, c: Any, a: Any, b: Any) -> Any:
    return g.op("Where", c, a, b)


def softmax(g: Any, v: Any) -> Any:
    e = g.op("Exp", v - red(g, "Max", v, -1))
    return e / red(g, "Sum", e, -1)


def size(g: Any, v: Any, axis: int) -> Any:
    """A dim as a 1-D int64 tensor."""
    return g.op("Gather", g.op("Shape", v), g.ints([axis]), axis_i=0)
