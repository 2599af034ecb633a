# ruff: noqa: E501
"""The builder refuses what an opset lacks, and its helpers mean the same at every opset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from rewriter.errors import DecompositionFault, NeedsRank, UnsupportedAtOpset
from rewriter.placeholder import Builder, Value
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

OPSETS = (11, 12, 13, 15, 18, 19, 28)
F32 = TensorType(TensorProto.FLOAT, (2, 3, 4))
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7


def x_of(g: Builder, shape: tuple[Any, ...] = (2, 3, 4), dtype: int = TensorProto.FLOAT) -> Value:
    return g.input("x", TensorType(dtype, shape))


def run(
    opset: int, build: Callable[[Builder, Value], Any], x: Any = X, *, symbolic: bool = False
) -> list[Any]:
    """What onnxruntime makes of what ``build`` built; checks the inferred types on the way."""
    g = Builder(opset)
    dtype = int(helper.np_dtype_to_tensor_dtype(x.dtype))
    shape = tuple(f"d{i}" for i in range(x.ndim)) if symbolic else x.shape
    made = build(g, g.input("x", TensorType(dtype, shape)))
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    graph = helper.make_graph(
        [*g.nodes, *(helper.make_node("Identity", [v.name], [f"out{i}"]) for i, v in enumerate(results))],
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_empty_tensor_value_info(f"out{i}") for i in range(len(results))],
        g.initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": x})
    for value, array in zip(results, found, strict=True):
        assert value.type is not None
        assert value.dtype == helper.np_dtype_to_tensor_dtype(array.dtype)
        assert value.rank == array.ndim
        assert all(d == n for d, n in zip(value.shape, array.shape, strict=True) if isinstance(d, int))
    return found


#: Each helper, and what numpy calls the same.
HELPERS: dict[str, tuple[Callable[[Builder, Value], Any], Callable[[Any], Any]]] = {
    "slice": (lambda g, x: g.slice(x, [1, 0], [3, 2], [1, 2]), lambda x: x[:, 1:3, 0:2]),
    "slice with steps": (lambda g, x: g.slice(x, [0], [4], [2], [2]), lambda x: x[..., ::2]),
    "squeeze": (lambda g, x: g.squeeze(g.unsqueeze(x, [1, 4]), [1]), lambda x: x[..., None]),
    "split": (lambda g, x: g.split(x, [1, 2], 1), lambda x: (x[:, :1], x[:, 1:])),
    "clip": (lambda g, x: g.clip(x, -1.0, 2.0), lambda x: x.clip(-1, 2)),
    "clip below": (lambda g, x: g.clip(x, low=-1.0), lambda x: x.clip(-1)),
    "pad": (lambda g, x: g.pad(x, [0, 1, 0], [0, 0, 2], value=5.0), lambda x: np.pad(x, [(0, 0), (1, 0), (0, 2)], constant_values=5)),
    "pad edge": (lambda g, x: g.pad(x, [0, 1, 0], [0, 0, 2], "edge"), lambda x: np.pad(x, [(0, 0), (1, 0), (0, 2)], "edge")),
    "sum": (lambda g, x: g.reduce_sum(x, [0, 2]), lambda x: x.sum((0, 2), keepdims=True)),
    "mean": (lambda g, x: g.reduce_mean(x, [-1], keepdims=False), lambda x: x.mean(-1)),
    "max": (lambda g, x: g.reduce_max(x, [1], keepdims=False), lambda x: x.max(1)),
    "softmax inside": (lambda g, x: g.softmax(x, 1), lambda x: np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)),
    "top_k": (lambda g, x: g.top_k(x, 2, axis=1)[0], lambda x: -np.sort(-x, axis=1)[:, :2]),
    "cumsum": (lambda g, x: g.cumsum(x, 1), lambda x: x.cumsum(1)),
    "shape": (lambda g, x: g.shape(x), lambda x: np.asarray(x.shape)),
    "reshape": (lambda g, x: g.reshape(x, [g.dim(x, 0), 12]), lambda x: x.reshape(2, 12)),
    "reshape by two sizes": (lambda g, x: g.reshape(x, [g.dim(x, 1), g.dim(x, 0), 4]), lambda x: x.reshape(3, 2, 4)),
    "expand": (lambda g, x: g.expand(g.reduce_max(x, [1]), [g.dim(x, 0), 5, g.dim(x, 2)]), lambda x: np.repeat(x.max(1, keepdims=True), 5, 1)),
    "range": (lambda g, x: g.range(0, g.squeeze(as_value(g, g.dim(x, 2)), [0])), lambda x: np.arange(x.shape[2])),
    "less_equal": (lambda g, x: g.less_equal(x, 0.0), lambda x: x <= 0),
    "greater_equal": (lambda g, x: g.greater_equal(x, 0.0), lambda x: x >= 0),
    "arithmetic": (lambda g, x: 1 - (2 / (x * x + 1)) @ g.transpose(x, [0, 2, 1]), lambda x: 1 - (2 / (x * x + 1)) @ x.transpose(0, 2, 1)),
    "where": (lambda g, x: g.where_(g.greater(x, 1.0), x, -1.0), lambda x: np.where(x > 1, x, -1)),
    "tile": (lambda g, x: g.tile(x, [1, 2, 1]), lambda x: np.tile(x, (1, 2, 1))),
    "product": (lambda g, x: as_value(g, g.product([g.dim(x, 0), g.dim(x, 1), 5])), lambda x: np.asarray([30])),
}  # fmt: skip


def as_value(g: Builder, size: int | Value) -> Value:
    return g.ints([size]) if isinstance(size, int) else size


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("name", HELPERS)
def test_helpers_mean_what_numpy_means(name: str, symbolic: bool) -> None:
    build, meaning = HELPERS[name]
    expected = meaning(X)
    for opset in OPSETS:
        found = run(opset, build, symbolic=symbolic)
        for got, want in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=f"opset {opset}")


def test_a_size_of_zero_survives_a_reshape() -> None:
    empty = np.zeros((0, 3), np.float32)
    for opset in OPSETS:
        (got,) = run(opset, lambda g, x: g.reshape(x, [3, 0, 7]), empty)
        assert got.shape == (3, 0, 7)


def test_known_sizes_cost_no_operators() -> None:
    g = Builder(17)
    x = x_of(g)
    assert g.dim(x, 1) == 3
    assert g.product([g.dim(x, 0), g.dim(x, -1)]) == 8
    g.shape(x)
    g.reshape(x, [2, 3, 4])
    g.expand(x, [2, 3, 4])
    g.transpose(x, [0, 1, 2])
    g.cast(x, TensorProto.FLOAT)
    assert g.nodes == []


def test_symbols_are_kept_where_sizes_stay() -> None:
    g = Builder(17)
    x = x_of(g, ("batch", 3, "time"))
    assert g.reshape(x, [g.dim(x, 0), g.dim(x, 2), 3]).shape == ("batch", "time", 3)
    assert g.expand(x, [g.dim(x, 0), 3, g.dim(x, 2)]).shape == ("batch", 3, "time")


def test_constants_take_the_dtype_of_the_graph_and_are_made_once() -> None:
    g = Builder(17)
    x = x_of(g, dtype=TensorProto.FLOAT16)
    y = x * 2.0 + 2.0
    assert y.dtype == TensorProto.FLOAT16
    assert [(t.data_type, list(t.dims)) for t in g.initializers] == [(TensorProto.FLOAT16, [])]
    assert g.const(-0.0, x) is not g.const(0.0, x)


def refused(
    error: type[Exception], says: str, build: Callable[[Builder, Value], Any], opset: int = 13
) -> None:
    g = Builder(opset)
    with pytest.raises(error, match=says):
        build(g, x_of(g))


def test_what_the_opset_lacks_is_refused() -> None:
    refused(
        UnsupportedAtOpset, "Gelu exists since opset 20, the model has opset 13", lambda g, x: g.op("Gelu", x)
    )
    refused(
        UnsupportedAtOpset, "no attribute 'axes' at opset 13", lambda g, x: g.op("Squeeze", x, axes_i=[0])
    )
    refused(
        UnsupportedAtOpset,
        "no attribute 'reduction'",
        lambda g, x: g.op("ScatterND", x, x, x, reduction_s="add"),
    )
    refused(UnsupportedAtOpset, "takes no float32 as its input 0", lambda g, x: g.op("Not", x))
    refused(UnsupportedAtOpset, "deprecated", lambda g, x: g.op("Upsample", x, x))
    refused(DecompositionFault, "ONNX has no operator 'Roll'", lambda g, x: g.op("Roll", x))


def test_what_does_not_fit_is_refused() -> None:
    refused(DecompositionFault, "needs attribute 'to'", lambda g, x: g.op("Cast", x))
    refused(DecompositionFault, "takes 1 to 1 inputs", lambda g, x: g.op("Relu", x, x))
    refused(
        DecompositionFault,
        "given float32 and float16",
        lambda g, x: g.op("Mul", x, g.const(1.0, TensorProto.FLOAT16)),
    )
    refused(DecompositionFault, "needs a dtype", lambda g, x: g.const(1.5))
    refused(DecompositionFault, "input 1 of Mul is a float, not a value", lambda g, x: g.op("Mul", x, 2.0))
    refused(DecompositionFault, "does not fit its inputs", lambda g, x: g.op("Transpose", x, perm=[0, 0, 5]))


def test_an_unknown_rank_is_a_need() -> None:
    g = Builder(13)
    x = g.input("x", TensorType(TensorProto.FLOAT))
    with pytest.raises(NeedsRank, match="the rank of 'x' is needed"):
        g.dim(x, 0)
    with pytest.raises(NeedsRank, match="the dtype of 'y' is needed"):
        g.const(1.0, g.input("y", None))


def test_suffixes_of_torch_symbolics() -> None:
    import torch

    g = Builder(13)
    x = x_of(g)
    two = g.op("Constant", value_t=torch.tensor(2.0))
    y = g.op("LeakyRelu", g.op("Mul", x, two), alpha_f=0.1)
    assert y.shape == (2, 3, 4)
    assert two.constant.item() == 2.0
    first, second = g.op("Split", x, g.ints([2, 2]), axis_i=2, outputs=2)
    assert (first.shape, second.shape) == ((2, 3, 2), (2, 3, 2))
    attributes = {a.name for n in g.nodes for a in n.attribute}
    assert attributes == {"value", "alpha", "axis"}


@pytest.mark.parametrize("opset", OPSETS)
def test_bodies_read_outer_values(opset: int) -> None:
    def build(g: Builder, x: Value) -> Value:
        # Σ over three rounds of x, by a Loop whose body reads x.
        body = g.body()
        index = body.input("i", TensorType(TensorProto.INT64, ()))
        going = body.input("going", TensorType(TensorProto.BOOL, ()))
        total = body.input("total", x.type)
        graph = body_of(g, body, [index, going, total], [body.identity(going), total + body.values["x"]])
        result: Value = g.op(
            "Loop", g.ints(3), g.const(True), g.const(np.zeros(x.shape, np.float32)), body=graph
        )
        return result

    def body_of(g: Builder, body: Builder, inputs: list[Value], outputs: list[Value]) -> Any:
        return g.subgraph("body", body, inputs, outputs)

    (got,) = run(opset, build)
    np.testing.assert_array_equal(got, 3 * X)
