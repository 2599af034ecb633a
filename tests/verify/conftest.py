"""Models with placeholders, and passes that are right or wrong on purpose."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewriter.decompose import decompose
from rewriter.placeholder import Case, Placeholder, Selection, Value, f32
from rewriter.storage import ModelFile
from rewriter.verify import VerifyOptions, verify


class Double(Placeholder):
    """x + x."""

    matches = ("Double",)

    def reference(self, x):
        return x + x

    def decompose(self, g, x: Value):
        return x + x

    def cases(self):
        yield Case(f32(2, 3))


class Shift(Placeholder):
    """torch.roll by a positive shift along one static axis."""

    matches = ("Shift",)
    tolerances = {"float32": (0.0, 0.0)}  # noqa: RUF012

    def reference(self, x, shift, dim):
        import torch

        return torch.roll(x, shift, dim)

    def decompose(self, g, x: Value, shift: int, dim: int):
        return self.build(g, x, shift, dim)

    def build(self, g, x, shift, dim):
        size = x.size(dim)
        return g.gather(x, [(i - shift) % size for i in range(size)], axis=dim)

    def cases(self):
        yield Case(f32(2, 3), shift=1, dim=1)


def model(*nodes, inputs, outputs, tensors=None, functions=(), domains=(), opset=17, ir=8):
    """A model of ``nodes``; ``inputs`` and ``outputs`` map names to (element type, shape)."""

    def infos(values):
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in values.items()]

    graph = helper.make_graph(
        list(nodes),
        "test",
        infos(inputs),
        infos(outputs),
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (tensors or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=list(functions))


def node(op_type, inputs, outputs, name=None, domain=None, **attributes):
    return helper.make_node(op_type, inputs, outputs, name=name, domain=domain, **attributes)


def example(op_type, inputs, outputs, name=None, **attributes):
    return node(op_type, inputs, outputs, name=name, domain="com.example", **attributes)


FLOAT, HALF, DOUBLE, INT64, BOOL = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.DOUBLE,
    TensorProto.INT64,
    TensorProto.BOOL,
)


@contextmanager
def rewritten(source: onnx.ModelProto, *passes: Placeholder):
    """The file and what decomposing it did."""
    with ModelFile.from_proto(source) as file:
        names = frozenset(p.pass_name() for p in passes)
        done = decompose(file, Selection(tuple(passes), names))
        yield file, done


def prove(source: onnx.ModelProto, *passes: Placeholder, delivered=None, **options):
    """Decompose and verify ``source``; ``delivered`` changes a copy of the rewritten model."""
    with rewritten(source, *passes) as (file, done):
        result = onnx.ModelProto()
        result.CopyFrom(file.model)
        if delivered is not None:
            delivered(result)
        return verify(file, file.model, result, done.regions, VerifyOptions(**options))


@pytest.fixture
def double_model():
    """Relu, a Double called ``twice``, and a matrix product by withheld weights."""
    weights = np.random.default_rng(1).standard_normal((64, 32)).astype(np.float32)
    return model(
        node("Relu", ["x"], ["r"]),
        example("Double", ["r"], ["d"], name="twice"),
        node("MatMul", ["d", "w"], ["y"]),
        inputs={"x": (FLOAT, ["batch", 64])},
        outputs={"y": (FLOAT, ["batch", 32])},
        tensors={"w": weights},
        domains=["com.example"],
    )
