"""What a symbolic must not do is refused at its own line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.onnx import symbolic_helper

import rewriter
from rewriter import Case, f32, from_symbolic
from rewriter.errors import (
    DecompositionError,
    DecompositionFault,
    PassDefinitionError,
    UnsupportedAtOpset,
    UnsupportedParameter,
)
from tests.interop.conftest import line, model_of

if TYPE_CHECKING:
    from collections.abc import Callable


def tensor(g: Any, *values: int) -> Any:
    return g.op("Constant", value_t=torch.tensor(values))


# --- operators in another opset's form ---------------------------------------------------------------------------


def squeeze_attribute(g: Any, x: Any) -> Any:
    return g.op("Squeeze", x, axes_i=[0])  # refused


def squeeze_input(g: Any, x: Any) -> Any:
    return g.op("Squeeze", x, tensor(g, 0))  # refused


def unsqueeze_attribute(g: Any, x: Any) -> Any:
    y = g.op("Relu", x)
    return g.op("Unsqueeze", y, axes_i=[0])  # refused


def reduce_sum_attribute(g: Any, x: Any) -> Any:
    return g.op("ReduceSum", x, axes_i=[0], keepdims_i=1)  # refused


def reduce_mean_attribute(g: Any, x: Any) -> Any:
    return g.op("ReduceMean", x, axes_i=[0], keepdims_i=1)  # refused


def split_attribute(g: Any, x: Any) -> Any:
    return g.op("Split", x, split_i=[1, 2], axis_i=1, outputs=2)[0]  # refused


def pad_attribute(g: Any, x: Any) -> Any:
    return g.op("Pad", x, pads_i=[0, 1, 0, 1])  # refused


def slice_attribute(g: Any, x: Any) -> Any:
    return g.op("Slice", x, axes_i=[1], starts_i=[0], ends_i=[1])  # refused


def clip_attribute(g: Any, x: Any) -> Any:
    return g.op("Clip", x, min_f=0.0, max_f=6.0)  # refused


def dropout_attribute(g: Any, x: Any) -> Any:
    return g.op("Dropout", x, ratio_f=0.5)  # refused


def top_k_attribute(g: Any, x: Any) -> Any:
    return g.op("TopK", x, k_i=1, outputs=2)[0]  # refused


def upsample(g: Any, x: Any) -> Any:
    return g.op("Upsample", x, tensor(g, 1, 1))  # refused


def gelu(g: Any, x: Any) -> Any:
    return g.op("Gelu", x)  # refused


def constant_ints(g: Any, x: Any) -> Any:
    return g.op("Reshape", x, g.op("Constant", value_ints_i=[3, 2]))  # refused


def helper_of_its_own(g: Any, x: Any) -> Any:
    def inner(y: Any) -> Any:
        return g.op("Squeeze", y, axes_i=[0])  # refused

    return inner(g.op("Relu", x))


def several_lines(g: Any, x: Any) -> Any:
    return g.op(
        "Relu",
        g.op(  # refused
            "Squeeze",
            x,
            axes_i=[0],
        ),
    )


@pytest.mark.parametrize(
    ("body", "opset", "says"),
    [
        (squeeze_attribute, 13, "Squeeze has no attribute 'axes' at opset 13"),
        (unsqueeze_attribute, 13, "Unsqueeze has no attribute 'axes' at opset 13"),
        (reduce_sum_attribute, 13, "ReduceSum has no attribute 'axes' at opset 13"),
        (reduce_mean_attribute, 18, "ReduceMean has no attribute 'axes' at opset 18"),
        (split_attribute, 13, "Split has no attribute 'split' at opset 13"),
        (pad_attribute, 11, "Pad has no attribute 'pads' at opset 11"),
        (slice_attribute, 11, "Slice has no attribute 'axes' at opset 11"),
        (clip_attribute, 11, "Clip has no attribute 'min' at opset 11"),
        (dropout_attribute, 13, "Dropout has no attribute 'ratio' at opset 13"),
        (top_k_attribute, 11, "TopK has no attribute 'k' at opset 11"),
        (upsample, 11, "Upsample is deprecated at opset 11"),
        (gelu, 13, "Gelu exists since opset 20, the model has opset 13"),
        (constant_ints, 11, "Constant has no attribute 'value_ints' at opset 11"),
        (helper_of_its_own, 13, "Squeeze has no attribute 'axes' at opset 13"),
        (several_lines, 13, "Squeeze has no attribute 'axes' at opset 13"),
    ],
    ids=lambda item: getattr(item, "__name__", str(item)),
)
def test_another_opsets_form(body: Callable[..., Any], opset: int, says: str) -> None:
    error = refusal(body, opset)
    assert isinstance(error, UnsupportedAtOpset)
    assert error.what == f"{line(body)}: {says}"
    assert "mylib::body 'it'" in str(error)


def test_an_input_that_the_opset_has_as_an_attribute() -> None:
    error = refusal(squeeze_input, 11)
    assert error.what.startswith(
        f"{line(squeeze_input)}: Squeeze takes 1 to 1 inputs at opset 11, 2 are given"
    )


@pytest.mark.parametrize("opset", [11, 12])
def test_the_forms_that_fit_are_taken(opset: int) -> None:
    model = model_of("mylib::body", {"x": ("float32", [1, 3])}, opset=opset)
    squeeze = from_symbolic(
        "mylib::body", squeeze_attribute, reference=lambda x: x.squeeze(0), cases=[Case(f32(1, 3))]
    )
    assert rewriter.rewrite(model, passes=[squeeze], simplify=False).outcome == "verified"


# --- values that do not fit --------------------------------------------------------------------------------------


def float32_constant(g: Any, x: Any) -> Any:
    two = g.op("Constant", value_t=torch.tensor(2.0))
    return g.op("Mul", x, two)  # refused


def test_a_float32_constant_in_a_float16_graph() -> None:
    error = refusal(float32_constant, 13, dtype="float16")
    assert error.what == f"{line(float32_constant)}: Mul is given float16 and float32"


@pytest.mark.parametrize(
    ("body", "opset", "dtype", "remedy"),
    [
        (squeeze_attribute, 13, "float32", "it is an input since"),
        (gelu, 13, "float32", "declare the pass with opset=20, or write it with older operators"),
        (float32_constant, 13, "float16", "make the constant in the dtype of the other operand"),
    ],
)
def test_the_remedy_speaks_of_what_a_symbolic_has(body: Any, opset: int, dtype: str, remedy: str) -> None:
    assert refusal(body, opset, dtype=dtype).remedy == remedy


def float_attribute_of_ints(g: Any, x: Any) -> Any:
    return g.op("Transpose", x, perm_f=[1.0, 0.0])  # refused


def int_for_ints(g: Any, x: Any) -> Any:
    return g.op("Transpose", x, perm_i=1)  # refused


def no_suffix(g: Any, x: Any) -> Any:
    return g.op("Concat", x, x, axis=1)  # refused


def not_an_int(g: Any, x: Any) -> Any:
    return g.op("Concat", x, x, axis_i=1.0)  # refused


def misspelt_operator(g: Any, x: Any) -> Any:
    return g.op("Sigmiod", x)  # refused


def missing_attribute(g: Any, x: Any) -> Any:
    return g.op("Concat", x, x)  # refused


def number_as_input(g: Any, x: Any) -> Any:
    return g.op("Mul", x, 2.0)  # refused


def does_not_fit(g: Any, x: Any) -> Any:
    return g.op("MatMul", x, x)  # refused


def wrong_claim(g: Any, x: Any) -> Any:
    return g.op("Relu", x).setType(x.type().with_sizes([3, 2]))  # refused


def an_attribute_that_is_computed(g: Any, x: Any) -> Any:
    return g.op("Concat", x, x, axis_i=g.op("Shape", x))  # refused


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (float_attribute_of_ints, "attribute 'perm' of Transpose is ints, floats is given"),
        (int_for_ints, "attribute 'perm' of Transpose is ints, an int is given"),
        (no_suffix, "attribute 'axis' of Concat has no type suffix"),
        (not_an_int, "attribute 'axis' of Concat: 1.0 is no integer"),
        (misspelt_operator, "ONNX has no operator 'Sigmiod'"),
        (missing_attribute, "Concat needs attribute 'axis'"),
        (number_as_input, "input 1 of Mul is a float, not a value"),
        (does_not_fit, "MatMul does not fit its inputs: "),
        (wrong_claim, "setType() says float32[3, 2], the value is float32[2, 3]"),
        (an_attribute_that_is_computed, "attribute 'axis' of Concat is given a value that is not known"),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_what_does_not_fit(body: Callable[..., Any], says: str) -> None:
    error = refusal(body, 13)
    assert isinstance(error, DecompositionFault)
    assert error.what.startswith(f"{line(body)}: {says}")


# --- what is not supported ---------------------------------------------------------------------------------------


def asks_the_graph(g: Any, x: Any) -> Any:
    g.graph.addInput("y")  # refused
    return x


def aten(g: Any, x: Any) -> Any:
    return g.at("roll", x)  # refused


def prim(g: Any, x: Any) -> Any:
    return g.op("prim::ListConstruct", x)  # refused


def uses(g: Any, x: Any) -> Any:
    return x.uses()  # refused


def inner_blocks(g: Any, x: Any) -> Any:
    y = g.op("Relu", x)
    y.node().addBlock()  # refused
    return y


def a_real_type(g: Any, x: Any) -> Any:
    return g.op("Relu", x).setType(torch._C.TensorType.get())  # refused


def strides(g: Any, x: Any) -> Any:
    return x.type().strides()  # refused


def arithmetic(g: Any, x: Any) -> Any:
    return x + x  # refused


def a_tensor_as_a_condition(g: Any, x: Any) -> Any:
    return x if x == 0 else g.op("Relu", x)  # refused


def sizes_unknown(g: Any, x: Any) -> Any:
    return g.op("Reshape", x, tensor(g, x.type().sizes()[0], 3))  # refused


def constant_of_a_tensor(g: Any, x: Any) -> Any:
    return symbolic_helper._get_const(x, "i", "x")  # refused


def into_torch(g: Any, x: Any) -> Any:
    torch._C._jit_pass_onnx_node_shape_type_inference(x.node(), {}, 13)  # refused
    return x


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (asks_the_graph, "g.graph is not supported in a symbolic used as a pass"),
        (aten, "g.at is not supported in a symbolic used as a pass"),
        (prim, "g.op('prim::ListConstruct') is not supported in a symbolic used as a pass"),
        (uses, "Value.uses is not supported in a symbolic used as a pass"),
        (inner_blocks, "node().addBlock is not supported in a symbolic used as a pass"),
        (a_real_type, "setType(Tensor) is not supported in a symbolic used as a pass"),
        (strides, "type().strides is not supported in a symbolic used as a pass"),
        (arithmetic, "arithmetic takes a Python value, and a tensor is given"),
        (a_tensor_as_a_condition, "a comparison takes a Python value, and a tensor is given"),
        (sizes_unknown, "TypeError: 'NoneType' object is not subscriptable"),
        (constant_of_a_tensor, "ONNX symbolic expected a constant value of the 'x' argument"),
        (
            into_torch,
            "TypeError: _jit_pass_onnx_node_shape_type_inference(): incompatible function arguments",
        ),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_what_is_not_supported(body: Callable[..., Any], says: str) -> None:
    error = refusal(body, 13, rows="n")
    assert error.what.startswith(f"{line(body)}: {says}"), error.what


def test_the_value_of_a_constant_used_as_a_number_where_values_were_asked_for() -> None:
    def body(g: Any, x: Any, axis: Any) -> Any:
        return g.op("Concat", x, x, axis_i=axis)  # refused

    made = from_symbolic(
        "mylib::body",
        body,
        reference=lambda x, axis: torch.cat([x, x], axis),
        cases=[Case(f32(2, 3), axis=1)],
        constants="value",
    )
    model = model_of("mylib::body", {"x": ("float32", [2, 3])}, opset=13, axis=1)
    with pytest.raises(DecompositionFault) as caught:
        rewriter.rewrite(model, passes=[made], verify=False)
    assert caught.value.what.startswith(f"{line(body)}: attribute 'axis' of Concat takes a Python value")
    assert 'constants="python"' in str(caught.value.remedy)


def test_a_wrong_result_is_caught_by_the_proof() -> None:
    def body(g: Any, x: Any) -> Any:
        return g.op("Mul", x, g.op("Relu", x))

    made = from_symbolic(
        "mylib::body", body, reference=lambda x: x * torch.sigmoid(x), cases=[Case(f32(2, 3))]
    )
    with pytest.raises(rewriter.errors.MismatchError, match="mylib::body"):
        rewriter.rewrite(model_of("mylib::body", {"x": ("float32", [2, 3])}, opset=13), passes=[made])


def test_something_returned_that_is_no_value() -> None:
    def body(g: Any, x: Any) -> Any:  # refused
        return 3

    assert refusal(body, 13).what == f"{line(body)}: the symbolic returned a int, not a value of g.op"


def test_wrong_number_of_outputs() -> None:
    def body(g: Any, x: Any) -> Any:
        return g.op("Relu", x)

    made = from_symbolic(
        "mylib::body", body, reference=lambda x: (x, x), cases=[Case(f32(2, 3))], outputs=("a", "b")
    )
    model = model_of("mylib::body", {"x": ("float32", [2, 3])}, opset=13, outputs=("a", "b"))
    with pytest.raises(DecompositionFault, match="gives 1 outputs, the node uses 2"):
        rewriter.rewrite(model, passes=[made])


# --- passes that do not load -------------------------------------------------------------------------------------


def relu(g: Any, x: Any) -> Any:
    return g.op("Relu", x)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cases": [Case(f32(2))]}, r"no reference\(\)"),
        ({"reference": torch.relu}, "no cases: they say what the parameters are"),
        ({"reference": torch.relu, "cases": []}, "no cases: they say what the parameters are"),
        ({"reference": torch.relu, "cases": [Case(f32(2), y=1)]}, "gives 'y', which is no parameter"),
        ({"reference": torch.relu, "cases": [Case(f32(2))], "parameters": {"y": int}}, "names 'y'"),
        ({"reference": torch.relu, "cases": [Case(f32(2))], "colour": 1}, "no option is called colour"),
        ({"reference": torch.relu, "cases": [Case(f32(2))], "constants": "both"}, "none of 'auto'"),
    ],
)
def test_a_pass_that_is_not_complete_does_not_load(options: dict[str, Any], says: str) -> None:
    model = model_of("mylib::relu", {"x": ("float32", [2])}, opset=13)
    with pytest.raises(PassDefinitionError, match=says):
        rewriter.rewrite(model, passes=[from_symbolic("mylib::relu", relu, **options)])


def refusal(
    body: Callable[..., Any], opset: int, *, dtype: str = "float32", rows: Any = 2
) -> DecompositionError:
    made = from_symbolic("mylib::body", body, reference=lambda x: x, cases=[Case(f32(2, 3))])
    model = model_of("mylib::body", {"x": (dtype, [rows, 3])}, opset=opset)
    with pytest.raises(DecompositionError) as caught:
        rewriter.rewrite(model, passes=[made], verify=False, derived=False)
    assert isinstance(caught.value, (DecompositionFault, UnsupportedAtOpset, UnsupportedParameter))
    return caught.value
