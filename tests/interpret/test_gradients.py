"""gradcheck of operators whose kernels are more than one function of torch's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from rewriter.interpret import Interpreter


@dataclass(frozen=True)
class Example:
    op_type: str
    #: Shapes of the inputs to differentiate by; arrays are held fixed, None is left out.
    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 20
    outputs: int = 1

    def __str__(self) -> str:
        words = [f"{k}={v}" for k, v in self.attributes.items()]
        return "-".join([self.op_type, str(self.opset), *words]).replace(" ", "")


def i64(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


EXAMPLES = (
    Example("Clip", ((3, 4), (), ())),
    Example("Pow", ((3, 4), np.array(3.0))),
    Example("PRelu", ((2, 3, 4), (3, 1))),
    Example("Selu", ((3, 4),)),
    Example("Softplus", ((3, 4),)),
    Example("Mish", ((3, 4),)),
    Example("Gelu", ((3, 4),), {"approximate": "tanh"}),
    Example("Softmax", ((2, 3, 4),), {"axis": 1}, opset=11),
    Example("LogSoftmax", ((2, 3, 4),), {"axis": 1}),
    Example("Gemm", ((3, 4), (5, 4), (5,)), {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    Example("Einsum", ((2, 3, 4), (2, 4, 5)), {"equation": "bij,bjk->bik"}),
    Example(
        "Conv", ((2, 4, 7, 6), (6, 2, 3, 3), (6,)), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}
    ),
    Example("Conv", ((1, 2, 7), (3, 2, 3)), {"auto_pad": "SAME_UPPER", "strides": [2]}),
    Example(
        "ConvTranspose",
        ((1, 4, 3, 4), (4, 3, 3, 2), (6,)),
        {"group": 2, "strides": [2, 2], "pads": [1, 0, 0, 1]},
    ),
    Example("ConvTranspose", ((1, 2, 3), (2, 2, 3)), {"output_shape": [7], "strides": [2]}),
    Example("DeformConv", ((1, 2, 5, 5), (2, 2, 2, 2), (1, 8, 4, 4), (2,), (1, 4, 4, 4)), opset=19),
    Example("MaxPool", ((1, 2, 7, 6),), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    Example(
        "AveragePool", ((1, 2, 7, 6),), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
    ),
    Example("LpPool", ((1, 2, 7),), {"kernel_shape": [3], "p": 3}),
    Example("GlobalMaxPool", ((2, 3, 4, 2),)),
    Example("BatchNormalization", ((2, 3, 4), (3,), (3,), (3,), np.array([1.0, 2.0, 0.5]))),
    Example("BatchNormalization", ((4, 3, 2), (3,), (3,), np.zeros(3), np.ones(3)), {"training_mode": 1}),
    Example("InstanceNormalization", ((2, 3, 4), (3,), (3,))),
    Example("LayerNormalization", ((2, 3, 4), (3, 4), (3, 4)), {"axis": 1}),
    Example("GroupNormalization", ((2, 4, 3), (2,), (2,)), {"num_groups": 2}),
    Example("GroupNormalization", ((2, 4, 3), (4,), (4,)), {"num_groups": 2}, opset=21),
    Example("RMSNormalization", ((2, 3, 4), (4,)), opset=23),
    Example("LpNormalization", ((3, 4),), {"p": 2, "axis": 1}),
    Example("LRN", ((2, 5, 3),), {"size": 3, "alpha": 0.1, "beta": 0.75, "bias": 1.0}),
    Example("ReduceLogSumExp", ((3, 4), i64(1))),
    Example("ReduceL2", ((3, 4), i64(0)), {"keepdims": 0}),
    Example("ReduceProd", ((2, 3, 2), i64(0, 2))),
    Example("ReduceMax", ((3, 4), i64(1))),
    Example("CumSum", ((3, 4), i64(1)[0]), {"reverse": 1, "exclusive": 1}),
    Example("TopK", ((3, 5), i64(2)), {"axis": 1}),
    Example("Slice", ((5, 4), i64(4, 0), i64(-6, 3), i64(0, 1), i64(-2, 1))),
    Example("Pad", ((3, 4), i64(2, -1, 1, 2)), {"mode": "reflect"}),
    Example("Pad", ((3, 4), i64(1, 0, 0, 2), (), i64(0, 1)[:2]), {}),
    Example("Pad", ((3, 4), i64(4, 1, 2, 5)), {"mode": "wrap"}),
    Example("Gather", ((4, 3), i64(0, -1, 0)), {"axis": 0}),
    Example("GatherElements", ((3, 3), np.array([[0, 1, -1], [2, 2, 0]])), {"axis": 0}),
    Example("GatherND", ((2, 3, 2), np.array([[[0], [2]], [[1], [1]]])), {"batch_dims": 1}),
    Example(
        "ScatterElements", ((3, 3), np.array([[0, 1, 2], [0, 0, 1]]), (2, 3)), {"axis": 0, "reduction": "add"}
    ),
    Example("ScatterND", ((4, 2), np.array([[1], [3]]), (2, 2))),
    Example("ScatterND", ((4, 2), np.array([[1], [1]]), (2, 2)), {"reduction": "mul"}),
    Example("Where", (np.array([True, False, True]), (2, 3), (3,))),
    Example("Expand", ((3, 1), i64(2, 1, 4))),
    Example("Tile", ((2, 3), i64(2, 1))),
    Example("Col2Im", ((1, 8, 6), i64(3, 4), i64(2, 2))),
    Example("Resize", ((1, 2, 3, 4), None, np.array([1, 1, 1.5, 2], dtype=np.float32)), {"mode": "linear"}),
    Example("Resize", ((1, 1, 4, 4), None, None, i64(1, 1, 7, 3)), {"mode": "cubic", "exclude_outside": 1}),
    Example("Resize", ((1, 1, 6, 6), None, None, i64(1, 1, 3, 4)), {"mode": "linear", "antialias": 1}),
    Example("Resize", ((2, 4), None, None, i64(3, 5)), {"mode": "nearest"}),
    Example("GridSample", ((1, 2, 4, 4), (1, 3, 3, 2)), {"mode": "linear", "padding_mode": "border"}),
    Example("GridSample", ((1, 2, 4, 4), (1, 3, 3, 2)), {"mode": "bicubic"}, opset=16),
    Example(
        "RoiAlign",
        ((1, 2, 6, 6), np.array([[0.3, 0.7, 4.4, 5.1], [1.2, 0.1, 3.3, 2.9]]), i64(0, 0)),
        {"output_height": 2, "output_width": 3, "sampling_ratio": 0},
    ),
    Example("RoiAlign", ((1, 2, 6, 6), np.array([[0.3, 0.7, 4.4, 5.1]]), i64(0)), {"mode": "max"}, opset=11),
    Example("Trilu", ((3, 4),), {"upper": 0}),
    Example("DepthToSpace", ((1, 8, 2, 3),), {"blocksize": 2, "mode": "CRD"}),
    Example("RNN", ((3, 2, 3), (1, 4, 3), (1, 4, 4), (1, 8)), {"hidden_size": 4}, outputs=2),
    Example(
        "GRU",
        ((3, 2, 3), (2, 12, 3), (2, 12, 4)),
        {"hidden_size": 4, "direction": "bidirectional"},
        outputs=2,
    ),
    Example(
        "LSTM",
        ((3, 2, 3), (1, 16, 3), (1, 16, 4), (1, 32), np.array([3, 2], dtype=np.int32), None, None, (1, 12)),
        {"hidden_size": 4, "direction": "reverse"},
        outputs=3,
    ),
    Example("Attention", ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (3, 5)), {"is_causal": 1}, opset=23),
    Example("RotaryEmbedding", ((1, 2, 3, 4), (1, 3, 2), (1, 3, 2)), opset=23),
    Example("SoftmaxCrossEntropyLoss", ((3, 5), i64(0, 4, 2)), opset=13),
    Example("DequantizeLinear", (np.array([[3, -7]], dtype=np.int8), ())),
)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_gradcheck(example: Example) -> None:
    rng = np.random.default_rng(0)
    infos, constants, names, moving = [], [], [], []
    for i, item in enumerate(example.inputs):
        names.append("" if item is None else f"x{i}")
        if isinstance(item, np.ndarray) or np.isscalar(item):
            array = np.asarray(item)
            array = array.astype(np.float32) if array.dtype == np.float64 else array
            constants.append(numpy_helper.from_array(array, f"x{i}"))
        elif item is not None:
            infos.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, item))
            moving.append(torch.from_numpy(rng.uniform(0.1, 0.9, item)).requires_grad_())
    outputs = [f"y{i}" for i in range(example.outputs)]
    node = helper.make_node(example.op_type, names, outputs, **example.attributes)
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], "g", infos, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", example.opset)], ir_version=10)
    interpreter = Interpreter(model, dtype=torch.float64)

    def function(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = interpreter({info.name: t for info, t in zip(infos, tensors, strict=True)})
        return tuple(made[name] for name in outputs)

    assert all(value.dtype == torch.float64 for value in function(*moving))
    assert all(value.requires_grad for value in function(*moving))
    assert torch.autograd.gradcheck(function, tuple(moving), fast_mode=False)


def test_integers_leave_the_graph_quietly() -> None:
    """Shapes and indices have no gradient; what they select has."""
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("ArgMax", ["x"], ["at"], axis=1, keepdims=1),
                helper.make_node("GatherElements", ["x", "at"], ["y"], axis=1),
            ],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 1])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    x = torch.tensor([[1.0, 3.0, 2.0], [9.0, 8.0, 7.0]], requires_grad=True)
    Interpreter(model)({"x": x})["y"].sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))
