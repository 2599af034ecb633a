"""Small passes of known meaning, and running what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import parser

from rewriter.decompose import Decomposed, decompose
from rewriter.graph.survey import Keep
from rewriter.placeholder import Builder, Case, Floats, Ints, Placeholder, Selection, Value, f32
from rewriter.storage import ModelFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Pass(Placeholder):
    def reference(self, x: Any) -> Any:
        return x

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3))


class Affine(Pass):
    """x · scale + offset, with the two as constants of the same local names in every decomposition."""

    matches = ("Affine",)

    def decompose(self, g: Builder, x: Value, scale: float = 1.0, offset: float = 0.0) -> Value:
        return x * g.const(scale, x) + g.const(offset, x)


class Same(Pass):
    """The identity."""

    matches = ("Same",)

    def decompose(self, g: Builder, x: Value) -> Value:
        return x


class Twice(Pass):
    """One value as both of its results."""

    matches = ("Twice",)
    outputs = ("first", "second")

    def decompose(self, g: Builder, x: Value) -> tuple[Value, Value]:
        y = g.op("Neg", x)
        return y, y


class Parts(Pass):
    """Sign, magnitude and a constant; makes only what is wanted."""

    matches = ("Parts",)
    outputs = ("sign", "magnitude", "three")

    def decompose(self, g: Builder, x: Value) -> tuple[Value | None, Value | None, Value | None]:
        sign = g.op("Sign", x) if g.wants("sign") else None
        magnitude = g.op("Abs", x) if g.wants("magnitude") else None
        return sign, magnitude, g.const(np.asarray([3.0], np.float32)) if g.wants("three") else None


class Outer(Pass):
    """Decomposes into another placeholder, whose result it negates."""

    matches = ("Outer",)

    def decompose(self, g: Builder, x: Value) -> Value:
        return g.op("Neg", g.op("com.example::Affine", x, scale=2.0, offset=1.0))


class Ping(Pass):
    matches = ("Ping",)

    def decompose(self, g: Builder, x: Value) -> Value:
        return g.op("com.example::Pong", x)


class Pong(Pass):
    matches = ("Pong",)

    def decompose(self, g: Builder, x: Value) -> Value:
        return g.op("com.example::Ping", x)


class Lost(Pass):
    """Decomposes into a placeholder that no pass takes."""

    matches = ("Lost",)

    def decompose(self, g: Builder, x: Value) -> Value:
        return g.op("com.example::Nowhere", x)


class Mirror(Pass):
    """Reverses the last axis; needs its size, or the rank at least."""

    matches = ("Mirror",)

    def decompose(self, g: Builder, x: Value) -> Value:
        return g.slice(x, [-1], [-(2**31)], axes=[x.rank - 1], steps=[-1])


class Shift(Pass):
    """x + shift[0], where the parameter may be a constant input."""

    matches = ("Shift",)

    def decompose(self, g: Builder, x: Value, amount: Floats | Ints = (0.0,)) -> Value:
        return x + g.const(float(amount[0]), x)


ALL: tuple[type[Placeholder], ...] = (Affine, Same, Twice, Parts, Outer, Ping, Pong, Lost, Mirror, Shift)


def selection(*passes: type[Placeholder]) -> Selection:
    return Selection.load(list(passes or ALL))


def model_of(text: str) -> onnx.ModelProto:
    return parser.parse_model(text)


def run_pass(
    model: onnx.ModelProto | str, *passes: type[Placeholder], keep: Iterable[str] = ()
) -> tuple[onnx.ModelProto, Decomposed]:
    """Decompose a copy of ``model``."""
    source = model_of(model) if isinstance(model, str) else model
    with ModelFile.from_proto(source) as file:
        done = decompose(file, selection(*passes), Keep.parse(keep))
        return file.hydrate(file.model), done


def evaluate(model: onnx.ModelProto, **feeds: Any) -> list[Any]:
    """The outputs that onnxruntime computes, with the checker's consent."""
    import onnxruntime

    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    results: list[Any] = session.run(None, feeds)
    return results


def operators(model: onnx.ModelProto) -> set[str]:
    """Every operator of the model, qualified, in all scopes."""
    found: set[str] = set()
    waiting: list[Any] = [model.graph, *model.functions]
    while waiting:
        for node in waiting.pop().node:
            found.add(f"{node.domain}::{node.op_type}" if node.domain else node.op_type)
            waiting += [a.g for a in node.attribute if a.HasField("g")]
            waiting += [g for a in node.attribute for g in a.graphs]
    return found
