"""Symbolics as people have them, from placeholder to verified model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.onnx import symbolic_helper, symbolic_opset9

from rewriter import Case, Ints, TensorSpec, Value, f32, from_symbolic, i64
from tests.interop.conftest import model_of, ops, rewrite, run

RNG = np.random.default_rng(0)


def square_plus_one(g: Any, x: Any) -> Any:
    """x² + 1, as registered with `register_custom_op_symbolic`."""
    two = g.op("Constant", value_t=torch.tensor(2.0))
    one = g.op("Constant", value_t=torch.tensor(1.0))
    return g.op("Add", g.op("Pow", x, two), one)


SQUARE = from_symbolic(
    "mylib::square_plus_one",
    square_plus_one,
    reference=lambda x: x * x + 1,
    cases=[Case(f32(2, 3))],
    dtypes=("float32",),
)


@pytest.mark.parametrize("opset", [11, 13])
def test_square_plus_one(opset: int) -> None:
    model = rewrite(model_of("mylib::square_plus_one", {"x": ("float32", ["n", 3])}, opset=opset), SQUARE)
    assert ops(model) == ["Pow", "Add"]
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_allclose(run(model, x=x)[0], x.astype(np.float64) ** 2 + 1, rtol=1e-6)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)

    @staticmethod
    def symbolic(g: Any, x: torch._C.Value) -> torch._C.Value:
        return g.op("Mul", x, g.op("Sigmoid", x))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("opset", [11, 13])
def test_swish_of_an_autograd_function(opset: int, dtype: str) -> None:
    swish = from_symbolic(
        "com.example::swish", Swish.symbolic, reference=torch.nn.functional.silu, cases=[Case(f32(2, 3))]
    )
    model = rewrite(model_of("com.example::swish", {"x": (dtype, ["n", 3])}, opset=opset), swish)
    assert ops(model) == ["Sigmoid", "Mul"]
    x = RNG.standard_normal((4, 3)).astype(dtype)
    expected = torch.nn.functional.silu(torch.from_numpy(x.astype(np.float64))).numpy()
    np.testing.assert_allclose(
        run(model, x=x)[0], expected, rtol=2e-3 if dtype == "float16" else 1e-6, atol=1e-4
    )


# --- ROI pooling ------------------------------------------------------------------------------------------------


def roi_align(g: Any, x: Any, rois: Any, output_size: Any, spatial_scale: Any) -> Any:
    indices = g.op(
        "Cast",
        g.op(
            "Squeeze",
            g.op("Slice", rois, *(g.op("Constant", value_t=torch.tensor([i])) for i in (0, 1, 1))),
            g.op("Constant", value_t=torch.tensor([1])),
        ),
        to_i=torch.onnx.TensorProtoDataType.INT64,
    )
    boxes = g.op("Slice", rois, *(g.op("Constant", value_t=torch.tensor([i])) for i in (1, 5, 1)))
    return g.op(
        "RoiAlign",
        x,
        boxes,
        indices,
        output_height_i=output_size[0],
        output_width_i=output_size[1],
        spatial_scale_f=spatial_scale,
        sampling_ratio_i=2,
    )


def roi_align_reference(
    x: torch.Tensor, rois: torch.Tensor, output_size: Any, spatial_scale: float
) -> torch.Tensor:
    """RoiAlign's own definition, in bilinear samples: 2 × 2 points to a bin, their mean."""
    height, width = output_size
    out = torch.zeros(len(rois), x.shape[1], height, width, dtype=x.dtype)
    for n, (batch, x1, y1, x2, y2) in enumerate(rois.tolist()):
        image = x[int(batch)]
        left, top = x1 * spatial_scale, y1 * spatial_scale
        bin_w = max(x2 * spatial_scale - left, 1.0) / width
        bin_h = max(y2 * spatial_scale - top, 1.0) / height
        for i in range(height):
            for j in range(width):
                points = [
                    _bilinear(image, top + (i + (a + 0.5) / 2) * bin_h, left + (j + (b + 0.5) / 2) * bin_w)
                    for a in range(2)
                    for b in range(2)
                ]
                out[n, :, i, j] = torch.stack(points).mean(0)
    return out


def _bilinear(image: torch.Tensor, y: float, x: float) -> torch.Tensor:
    _, height, width = image.shape
    if not (-1.0 <= y <= height and -1.0 <= x <= width):
        return torch.zeros(image.shape[0])
    y, x = min(max(y, 0.0), height - 1), min(max(x, 0.0), width - 1)
    y0, x0 = int(y), int(x)
    y1, x1 = min(y0 + 1, height - 1), min(x0 + 1, width - 1)
    dy, dx = y - y0, x - x0
    rows = [image[:, r, x0] * (1 - dx) + image[:, r, x1] * dx for r in (y0, y1)]
    return rows[0] * (1 - dy) + rows[1] * dy


def test_roi_pooling_onto_roi_align() -> None:
    rois = TensorSpec((2, 5), value=[[0, 1, 2, 12, 10], [1, 0, 0, 7, 15]])
    roi_pool = from_symbolic(
        "mylib::roi_pool",
        roi_align,
        reference=roi_align_reference,
        cases=[Case(f32(2, 3, 8, 8), rois, output_size=[2, 3], spatial_scale=0.5)],
        dtypes=("float32",),
    )
    model = model_of(
        "mylib::roi_pool",
        {"x": ("float32", [2, 3, 8, 8]), "rois": ("float32", ["k", 5])},
        opset=13,
        output_size=[2, 3],
        spatial_scale=0.5,
    )
    x = RNG.standard_normal((2, 3, 8, 8)).astype(np.float32)
    boxes = np.asarray([[0, 1, 2, 12, 10], [1, 0, 0, 7, 15]], np.float32)
    made = rewrite(model, roi_pool, inputs={"x": x, "rois": boxes})
    expected = roi_align_reference(torch.from_numpy(x), torch.from_numpy(boxes), [2, 3], 0.5)
    np.testing.assert_allclose(run(made, x=x, rois=boxes)[0], expected.numpy(), rtol=1e-5, atol=1e-5)


# --- detection: three outputs -----------------------------------------------------------------------------------


def detect(g: Any, boxes: Any, scores: Any, max_output: int, iou: float, threshold: float) -> tuple[Any, ...]:
    """Boxes (1, N, 4) and scores (1, C, N) to the kept boxes (K, 4), their scores (K,) and classes (K,)."""
    selected = g.op(
        "NonMaxSuppression",
        boxes,
        scores,
        g.op("Constant", value_t=torch.tensor([max_output])),
        g.op("Constant", value_t=torch.tensor([iou])),
        g.op("Constant", value_t=torch.tensor([threshold])),
    )
    columns = [
        g.op("Gather", selected, g.op("Constant", value_t=torch.tensor(column)), axis_i=1)
        for column in (1, 2)
    ]
    classes, index = columns
    axes = g.op("Constant", value_t=torch.tensor([0]))
    kept = g.op("Gather", g.op("Squeeze", boxes, axes), index, axis_i=0)
    pairs = (
        symbolic_helper._unsqueeze_helper(g, classes, [1]),
        symbolic_helper._unsqueeze_helper(g, index, [1]),
    )
    both = g.op("Concat", *pairs, axis_i=1)
    return kept, g.op("GatherND", g.op("Squeeze", scores, axes), both), classes


def detect_reference(
    boxes: torch.Tensor, scores: torch.Tensor, max_output: int, iou: float, threshold: float
) -> Any:
    """Greedy suppression, class by class, highest score first."""
    found = []
    for number, row in enumerate(scores[0]):
        kept: list[int] = []
        for i in sorted(range(len(row)), key=lambda i: -float(row[i])):
            if float(row[i]) <= threshold or len(kept) == max_output:
                continue
            if all(_overlap(boxes[0, i], boxes[0, j]) <= iou for j in kept):
                kept.append(i)
        found += [(number, i) for i in kept]
    classes = torch.tensor([c for c, _ in found], dtype=torch.int64)
    index = torch.tensor([i for _, i in found], dtype=torch.int64)
    return boxes[0, index], scores[0, classes, index], classes


def _overlap(a: torch.Tensor, b: torch.Tensor) -> float:
    side = [max(0.0, float(torch.minimum(a[i + 2], b[i + 2]) - torch.maximum(a[i], b[i]))) for i in (0, 1)]
    area = [float((c[2] - c[0]) * (c[3] - c[1])) for c in (a, b)]
    shared = side[0] * side[1]
    return shared / (area[0] + area[1] - shared)


def test_detection_with_three_outputs() -> None:
    corners = RNG.uniform(0, 10, (1, 12, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + RNG.uniform(2, 6, (1, 12, 2)).astype(np.float32)], axis=2)
    scores = RNG.permutation(24).reshape(1, 2, 12).astype(np.float32) / 24
    parameters = {"max_output": 4, "iou": 0.3, "threshold": 0.2}
    nms = from_symbolic(
        "com.example::Detect",
        detect,
        reference=detect_reference,
        cases=[
            Case(TensorSpec(boxes.shape, value=boxes), TensorSpec(scores.shape, value=scores), **parameters)
        ],
        outputs=("boxes", "scores", "classes"),
        dtypes=("float32",),
    )
    model = model_of(
        "com.example::Detect",
        {"b": ("float32", [1, 12, 4]), "s": ("float32", [1, 2, 12])},
        opset=13,
        outputs=("kept", "confidence", "label"),
        output_types={"label": ("int64", ["k"])},
        **parameters,
    )
    made = rewrite(model, nms, inputs={"b": boxes, "s": scores})
    expected = detect_reference(torch.from_numpy(boxes), torch.from_numpy(scores), 4, 0.3, 0.2)
    assert len(expected[2]) >= 4
    for actual, wanted in zip(run(made, b=boxes, s=scores), expected, strict=True):
        assert actual.dtype == wanted.numpy().dtype
        np.testing.assert_array_equal(actual, wanted.numpy())


# --- roll as two Slices and a Concat: both conventions for the numbers -----------------------------------------


def roll_of_python_values(g: Any, x: Any, shifts: Any, dims: Any) -> Any:
    """As `autograd.Function.symbolic` gets them: lists."""
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.type().sizes()[dim]
        cut = (size - shift) % size
        ends = [g.op("Constant", value_t=torch.tensor([i])) for i in (0, cut, size)]
        axis = g.op("Constant", value_t=torch.tensor([dim]))
        x = g.op(
            "Concat",
            g.op("Slice", x, ends[1], ends[2], axis),
            g.op("Slice", x, ends[0], ends[1], axis),
            axis_i=dim,
        )
    return x


@symbolic_helper.parse_args("v", "is", "is")
def roll_of_parsed_values(g: Any, x: Any, shifts: Any, dims: Any) -> Any:
    assert all(type(item) is int for item in (*shifts, *dims))
    return roll_of_python_values(g, x, shifts, dims)


def roll_of_constant_values(g: Any, x: Any, shifts: Any, dims: Any) -> Any:
    """As `register_custom_op_symbolic` gives them: constants to be unwrapped."""
    return roll_of_python_values(
        g, x, symbolic_helper._get_const(shifts, "is", "shifts"), symbolic_helper._maybe_get_const(dims, "is")
    )


def roll_of_annotated_values(g: Any, x: Any, shifts: list[int], dims: list[int]) -> Any:
    return roll_of_python_values(g, x, shifts, dims)


@pytest.mark.parametrize("as_inputs", [False, True], ids=["attributes", "inputs"])
@pytest.mark.parametrize(
    ("body", "constants"),
    [
        (roll_of_python_values, "auto"),
        (roll_of_python_values, "python"),
        (roll_of_parsed_values, "auto"),
        (roll_of_parsed_values, "value"),
        (roll_of_constant_values, "auto"),
        (roll_of_constant_values, "value"),
        (roll_of_constant_values, "python"),
        (roll_of_annotated_values, "auto"),
    ],
)
def test_roll_in_either_convention(body: Any, constants: Any, as_inputs: bool) -> None:
    roll = from_symbolic(
        "com.example::Roll",
        body,
        reference=torch.roll,
        cases=[Case(f32(2, 3, 5), shifts=[1, 2], dims=[1, 2])],
        constants=constants,
        dtypes=("float32",),
    )
    shape = {"x": ("float32", [2, 3, 5])}
    if as_inputs:
        model = model_of(
            "com.example::Roll",
            shape,
            opset=11,
            arguments=["x", "shifts", "dims"],
            constants={"shifts": [1, 2], "dims": [1, 2]},
        )
    else:
        model = model_of("com.example::Roll", shape, opset=11, shifts=[1, 2], dims=[1, 2])
    made = rewrite(model, roll)
    assert [op for op in ops(made) if op != "Constant"] == ["Slice", "Slice", "Concat"] * 2
    x = RNG.standard_normal((2, 3, 5)).astype(np.float32)
    np.testing.assert_array_equal(run(made, x=x)[0], np.roll(x, (1, 2), (1, 2)))


# --- numbers among the arguments --------------------------------------------------------------------------------


def scaled(g: Any, x: Any, beta: Any) -> Any:
    return g.op("Mul", x, beta)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("as_input", [False, True], ids=["attribute", "input"])
def test_a_number_takes_the_dtype_of_the_tensor_it_meets(dtype: str, as_input: bool) -> None:
    scale = from_symbolic(
        "mylib::scaled", scaled, reference=lambda x, beta: x * beta, cases=[Case(f32(2, 3), beta=1.5)]
    )
    if as_input:
        model = model_of(
            "mylib::scaled",
            {"x": (dtype, ["n", 3])},
            opset=13,
            arguments=["x", "beta"],
            constants={"beta": np.float32(1.5)},
        )
    else:
        model = model_of("mylib::scaled", {"x": (dtype, ["n", 3])}, opset=13, beta=1.5)
    made = rewrite(model, scale)
    x = RNG.standard_normal((4, 3)).astype(dtype)
    (actual,) = run(made, x=x)
    assert actual.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(actual, x * np.asarray(1.5, dtype))


def test_a_parameter_that_may_be_computed() -> None:
    scale = from_symbolic(
        "mylib::scaled",
        scaled,
        reference=lambda x, beta: x * beta,
        cases=[Case(f32(2, 3), beta=1.5), Case(f32(2, 3), f32())],
        dtypes=("float32",),
    )
    model = model_of("mylib::scaled", {"x": ("float32", ["n", 3]), "beta": ("float32", [])}, opset=13)
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(rewrite(model, scale), x=x, beta=np.float32(3))[0], x * np.float32(3))


def test_parameters_declared_in_the_vocabulary_of_a_pass() -> None:
    def moved(g: Any, x: Any, order: Any) -> Any:
        return g.op("Transpose", x, perm_i=order)

    transpose = from_symbolic(
        "mylib::moved",
        moved,
        reference=lambda x, order: x.permute(*order),
        cases=[Case(f32(2, 3, 4), order=[2, 0, 1])],
        parameters={"x": Value, "order": Ints},
        aliases={"dims": "order"},
    )
    model = model_of("mylib::moved", {"x": ("float32", ["a", "b", "c"])}, opset=11, dims=[2, 0, 1])
    made = rewrite(model, transpose)
    assert [d.dim_param for d in made.graph.output[0].type.tensor_type.shape.dim] in ([], ["c", "a", "b"])
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(made, x=x)[0], x.transpose(2, 0, 1))


# --- what a symbolic may ask ------------------------------------------------------------------------------------


def test_what_a_symbolic_may_ask_of_its_values() -> None:
    seen: dict[str, Any] = {}

    def asks(g: Any, x: Any, y: Any, k: Any, mask: Any = None) -> Any:
        seen.update(
            opset=g.opset,
            sizes=x.type().sizes(),
            varying=symbolic_helper._get_tensor_sizes(y),
            static=y.type().sizes(),
            size=symbolic_helper._get_tensor_dim_size(y, 1),
            rank=symbolic_helper._get_tensor_rank(y),
            dim=x.type().dim(),
            scalar=x.type().scalarType(),
            dtype=symbolic_helper._type_utils.JitScalarType.from_value(x).dtype(),
            k=symbolic_helper._get_const(k, "i", "k"),
            k_is=symbolic_helper._is_constant(k),
            x_is=symbolic_helper._is_constant(x),
            x_value=symbolic_helper._is_value(x),
            x_tensor=symbolic_helper._is_tensor(x),
            none=symbolic_helper._is_none(mask),
            kind=k.node().kind(),
        )
        made = g.op("Relu", x)
        seen["made"] = (made.node().kind(), made.type().sizes())
        clipped = g.op(
            "Clip", made, symbolic_helper._optional_input_placeholder_tensor(g), torch.tensor(6.0).half()
        )
        return clipped.setType(x.type().with_sizes([2, 3]))

    asking = from_symbolic(
        "mylib::asks",
        asks,
        reference=lambda x, y, k, mask=None: x.clamp(0, 6),
        cases=[Case(f32(2, 3), f32(2, 4), k=7)],
        dtypes=("float16",),
    )
    types = {"x": ("float16", [2, 3]), "y": ("float32", ["n", 4])}
    model = model_of("mylib::asks", types, opset=12, outputs=("z",), k=7)
    x = (10 * RNG.standard_normal((2, 3))).astype(np.float16)
    made = rewrite(model, asking)
    np.testing.assert_array_equal(run(made, x=x, y=np.zeros((2, 4), np.float32))[0], x.clip(0, 6))
    assert seen == {
        "opset": 12,
        "sizes": [2, 3],
        "varying": [None, 4],
        "static": None,
        "size": 4,
        "rank": 2,
        "dim": 2,
        "scalar": "Half",
        "dtype": torch.float16,
        "k": 7,
        "k_is": True,
        "x_is": False,
        "x_value": True,
        "x_tensor": True,
        "none": True,
        "kind": "onnx::Constant",
        "made": ("onnx::Relu", [2, 3]),
    }


def test_a_known_tensor_argument_is_a_constant() -> None:
    def padded(g: Any, x: Any, pads: Any) -> Any:
        assert symbolic_helper._get_const(pads, "is", "pads") == [0, 1, 0, 2]
        return g.op("Pad", x, pads)

    pad = from_symbolic(
        "mylib::padded",
        padded,
        reference=lambda x, pads: torch.nn.functional.pad(x, (int(pads[1]), int(pads[3]))),
        cases=[Case(f32(2, 3), i64(4, value=[0, 1, 0, 2]))],
        dtypes=("float32",),
    )
    model = model_of(
        "mylib::padded",
        {"x": ("float32", ["n", 3])},
        opset=11,
        arguments=["x", "pads"],
        constants={"pads": np.asarray([0, 1, 0, 2])},
    )
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(rewrite(model, pad), x=x)[0], np.pad(x, ((0, 0), (1, 2))))


def test_every_form_of_attribute() -> None:
    def shapes(g: Any, x: Any) -> Any:
        by_list = g.op("Transpose", x, perm_i=[1, 0])
        by_is = g.op("Transpose", by_list, perm_is=(1, 0))
        low, high = g.op("Split", by_is, axis_i=1, outputs=2)
        return g.op("Elu", g.op("Concat", high, low, axis_i=-1), alpha_f=2)

    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.elu(torch.cat(x.chunk(2, 1)[::-1], 1), alpha=2.0)

    swap = from_symbolic(
        "mylib::shapes", shapes, reference=reference, cases=[Case(f32(3, 4))], dtypes=("float32",)
    )
    made = rewrite(model_of("mylib::shapes", {"x": ("float32", ["n", 4])}, opset=13), swap)
    x = RNG.standard_normal((2, 4)).astype(np.float32)
    expected = reference(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(run(made, x=x)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
def test_the_helpers_of_torch_run_on_it_unchanged(opset: int) -> None:
    """Each makes what the opset has: axes as an attribute or an input, Split with a number of outputs or not."""

    def helped(g: Any, x: Any) -> Any:
        x = symbolic_helper._unsqueeze_helper(g, symbolic_opset9.softplus(g, x, 1.0, 20.0), [0])
        x = symbolic_helper._slice_helper(
            g, symbolic_helper._squeeze_helper(g, x, [0]), axes=[1], starts=[1], ends=[3]
        )
        return symbolic_helper._reducesum_helper(g, symbolic_opset9.mul(g, x, x), axes_i=[1], keepdims_i=0)

    made = from_symbolic(
        "mylib::helped",
        helped,
        reference=lambda x: (torch.nn.functional.softplus(x)[:, 1:3] ** 2).sum(1),
        cases=[Case(f32(2, 4))],
        dtypes=("float32",),
    )
    model = rewrite(model_of("mylib::helped", {"x": ("float32", ["n", 4])}, opset=opset), made)
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    expected = (np.log1p(np.exp(x.astype(np.float64)))[:, 1:3] ** 2).sum(1)
    np.testing.assert_allclose(run(model, x=x)[0], expected, rtol=1e-5)
