"""From attributes and inputs to arguments: the forms that exporters write, and every way in which they may not fit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewriter.errors import BindingError, UsageError
from rewriter.placeholder import Bound, Builder, Floats, Ints, Ref, Site, Value, bind
from rewriter.placeholder.rules import Attribute, Fixed, Input, parse_bind
from rewriter.placeholder.signature import Array, Signature, Strs, read_signature
from rewriter.types import TensorType

F32 = TensorType(TensorProto.FLOAT, (2, 3))


def signature(function: Any) -> Signature:
    return read_signature(function, "Test")


def roll(self: Any, g: Builder, x: Value, shifts: Ints | Value, dims: Ints = ()) -> Any: ...


def swish(self: Any, g: Builder, x: Value, beta: float | Value = 1.0) -> Any: ...


def mixed(
    self: Any,
    g: Builder,
    x: Value,
    mask: Value | None = None,
    scale: float = 1.0,
    causal: bool = False,
    mode: str = "plain",
    weights: Floats = (),
    table: Array | None = None,
    words: Strs = (),
) -> Any: ...


def cat(self: Any, g: Builder, *xs: Value, axis: int = 0) -> Any: ...


def site(inputs: list[str], constants: dict[str, Any] | None = None, **attributes: Any) -> Site:
    node = helper.make_node("Op", inputs, ["y"], domain="com.example")
    for name, value in attributes.items():
        kind = {"attr_type": 7} if value == [] else {}
        node.attribute.append(helper.make_attribute(name, value, **kind))
    known = {name: np.asarray(value) for name, value in (constants or {}).items()}
    return Site(node, tuple({"x": F32, "f": F32}.get(name) for name in inputs), known)


def arguments(function: Any, at: Site, **options: Any) -> dict[str, Any]:
    bound: Bound = bind(signature(function), at, **options)
    return {k: v.name if isinstance(v, Ref) else v for k, v in bound.arguments.items()}


ALIASES = {"shift": "shifts", "dim": "dims"}


def test_parameters_as_attributes() -> None:
    assert arguments(roll, site(["x"], shifts=[1, 2], dims=[0, 1])) == {
        "x": "x",
        "shifts": (1, 2),
        "dims": (0, 1),
    }


def test_singular_spelling_as_ints() -> None:
    got = arguments(roll, site(["x"], shift=1, dim=-1), aliases=ALIASES)
    assert got == {"x": "x", "shifts": (1,), "dims": (-1,)}


def test_names_match_whatever_their_case() -> None:
    assert arguments(roll, site(["x"], Shifts=[1], DIMS=[0])) == {"x": "x", "shifts": (1,), "dims": (0,)}


def test_parameters_as_constant_inputs() -> None:
    at = site(["x", "s", "d"], {"s": [1, 2], "d": [0, 1]})
    assert arguments(roll, at) == {"x": "x", "shifts": (1, 2), "dims": (0, 1)}


def test_a_scalar_constant_is_a_list_of_one() -> None:
    assert arguments(roll, site(["x", "s"], {"s": 3}))["shifts"] == (3,)


def test_an_empty_list_is_given_all_the_same() -> None:
    assert arguments(roll, site(["x"], shifts=[1], dims=[]))["dims"] == ()
    assert arguments(roll, site(["x", "s", "d"], {"s": [1], "d": np.zeros(0, np.int64)}))["dims"] == ()


def test_a_computed_parameter_where_it_is_allowed() -> None:
    assert arguments(roll, site(["x", "s"], dims=[1])) == {"x": "x", "shifts": "s", "dims": (1,)}


def test_a_computed_parameter_where_it_is_not() -> None:
    with pytest.raises(
        BindingError, match=r"'dims' must be known before the model runs.*input 2 \('d'\) is computed"
    ):
        bind(signature(roll), site(["x", "s", "d"], {"s": [1]}))


def test_a_tensor_of_several_elements_is_no_number() -> None:
    assert arguments(swish, site(["x", "b"], {"b": 0.5}))["beta"] == 0.5
    assert arguments(swish, site(["x", "b"], {"b": np.ones(3, np.float32)}))["beta"] == "b"


@pytest.mark.parametrize(
    ("function", "given", "says"),
    [
        (
            roll,
            np.asarray([1.0]),
            "a constant float64 tensor of shape \\[1\\], and 'shifts' must be a list of int",
        ),
        (roll, np.ones((2, 2), np.float32), "'shifts' must be a list of integers or a tensor"),
        (roll, np.asarray([b"1"], object), "'shifts' must be a list of integers or a tensor"),
        (
            roll,
            None,
            r"input 1 \('f'\) is a float32 tensor, and 'shifts' must be a list of integers or a tensor",
        ),
        (swish, np.asarray([1j]), "'beta' must be a number or a tensor"),
    ],
)
def test_a_tensor_of_other_elements_does_not_stand_for_a_number(function: Any, given: Any, says: str) -> None:
    with pytest.raises(BindingError, match=says):
        bind(signature(function), site(["x", "f"], {} if given is None else {"f": given}))


def test_a_tensor_of_another_shape_or_of_whole_numbers_does() -> None:
    assert arguments(roll, site(["x", "s"], {"s": np.ones((2, 2), np.int32)}))["shifts"] == "s"
    assert arguments(swish, site(["x", "b"], {"b": np.ones(3, np.int64)}))["beta"] == "b"
    assert arguments(swish, site(["x", "b"], {"b": np.ones(3, ml_dtypes.bfloat16)}))["beta"] == "b"


def test_defaults_and_omitted_inputs() -> None:
    got = arguments(mixed, site(["x", "", "s"], {"s": np.float32(2)}))
    assert got["mask"] is None
    assert got["scale"] == 2.0
    assert got["causal"] is False
    assert got["mode"] == "plain"


def test_every_kind_of_parameter_as_an_attribute() -> None:
    table = numpy_helper.from_array(np.arange(6, dtype=np.int64).reshape(2, 3))
    at = site(["x"], scale=2, causal=1, mode="edge", weights=[1.0, 2.0], table=table, words=["a", "bö"])
    got = arguments(mixed, at)
    assert (got["scale"], got["causal"], got["mode"]) == (2.0, True, "edge")
    assert got["weights"] == (1.0, 2.0)
    assert got["table"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert got["words"] == ("a", "bö")


def test_every_kind_of_parameter_as_a_constant_input() -> None:
    constants = {
        "s": np.float32(2),
        "c": np.asarray(True),
        "m": np.asarray(b"edge", dtype=object),
        "w": np.asarray([1.5], np.float32),
        "t": np.asarray([[1]]),
    }
    got = arguments(mixed, site(["x", "mask", "s", "c", "m", "w", "t"], constants))
    assert got["mask"] == "mask"
    assert (got["scale"], got["causal"], got["mode"], got["weights"]) == (2.0, True, "edge", (1.5,))
    assert got["table"].tolist() == [[1]]


def test_an_input_passes_over_a_default_that_it_cannot_be() -> None:
    def op(self: Any, g: Builder, x: Value, n: int = 3, y: Value | None = None) -> Any: ...

    assert arguments(op, site(["x", "y"])) == {"x": "x", "n": 3, "y": "y"}
    assert arguments(op, site(["x", "n", "y"], {"n": 5})) == {"x": "x", "n": 5, "y": "y"}


def test_any_number_of_inputs() -> None:
    assert [r.name for r in bind(signature(cat), site(["a", "b", "c"], axis=1)).refs()] == ["a", "b", "c"]
    assert arguments(cat, site([], axis=1)) == {"xs": (), "axis": 1}


def test_a_tensor_given_as_an_attribute() -> None:
    value = numpy_helper.from_array(np.ones(2, np.float32))
    ref = bind(signature(swish), site([], x=value)).arguments["x"]
    assert ref.constant.tolist() == [1.0, 1.0]
    assert ref.type == TensorType(TensorProto.FLOAT, (2,))


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (site(["x"], dims=[0]), r"'shifts' .* is missing; attributes given: dims"),
        (site(["x"], shift_=[1], dmis=[0]), r"attribute 'dmis' is not a parameter.*did you mean 'dims'"),
        (site(["x"], shifts=[1], dims=[0], extra=1), "attribute 'extra' is not a parameter"),
        (site(["x"], shifts=1.5), "attribute 'shifts' is float 1.5, and 'shifts' must be a list of integers"),
        (site(["x"], shifts=[1], dims="0"), "'dims' must be a list of integers"),
        (site(["x", "s", "d", "z"], {"s": [1], "d": [0]}), r"input 3 \('z'\) is left over"),
        (site([], shifts=[1]), "'x' .* is missing"),
        (site(["x"], x=[1.0], shifts=[1]), "given where the operator takes a tensor input"),
        (site(["x"], shifts=[1], shift=[2]), "'shifts' is given twice"),
    ],
)
def test_what_does_not_fit(at: Site, says: str) -> None:
    with pytest.raises(BindingError, match=says):
        bind(signature(roll), at, aliases=ALIASES)


def test_an_attribute_reference_that_nobody_resolves() -> None:
    at = site(["x"], shifts=[1])
    at.node.attribute[0].ref_attr_name = "outer"
    with pytest.raises(BindingError, match="refers to 'outer'"):
        bind(signature(roll), at)


def test_a_library_with_an_order_of_its_own() -> None:
    schema = ("-", "x", "dims.1", "dims.0", "shifts=[4, 5]")
    at = site(["ignored", "x", "a", "b"], {"a": 1, "b": 0})
    assert arguments(roll, at, schema=schema) == {"x": "x", "shifts": (4, 5), "dims": (0, 1)}
    with pytest.raises(BindingError, match="input 4"):
        bind(signature(roll), site(["i", "x", "a", "b", "more"], {"a": 1, "b": 0}), schema=schema)


class TestBindRules:
    def test_attributes_by_another_name(self) -> None:
        rule = parse_bind("mylib::shift_op=roll(shifts=amount,dims=axis)")
        assert (rule.domain, rule.op_type, rule.pass_name) == ("mylib", "shift_op", "roll")
        assert rule.sources == {"shifts": Attribute("amount"), "dims": Attribute("axis")}
        got = arguments(roll, site(["x"], amount=[2], axis=1), rule=rule)
        assert got == {"x": "x", "shifts": (2,), "dims": (1,)}

    def test_inputs_and_fixed_values(self) -> None:
        rule = parse_bind("a.b::Op = roll(x=$1, shifts=[1, -2], dims=$0)")
        assert rule.sources == {"x": Input(1), "shifts": Fixed([1, -2]), "dims": Input(0)}
        got = arguments(roll, site(["d", "x"], {"d": [0, 1]}), rule=rule)
        assert got == {"x": "x", "shifts": (1, -2), "dims": (0, 1)}

    def test_without_arguments(self) -> None:
        rule = parse_bind("mylib::activation=swish")
        assert (rule.op_type, rule.pass_name, rule.sources) == ("activation", "swish", {})

    @pytest.mark.parametrize(
        "text",
        ["roll", "a::b=", "a::b=roll(x", "a::b=roll(1=x)", "a::b=roll(x=)", "a::b=roll(x=1+f())"],
    )
    def test_what_cannot_be_read(self, text: str) -> None:
        with pytest.raises(UsageError, match="cannot be read"):
            parse_bind(text)

    def test_names_that_are_not_there(self) -> None:
        with pytest.raises(BindingError, match="has no attribute 'amount'"):
            arguments(roll, site(["x"], shifts=[1]), rule=parse_bind("m::o=roll(shifts=amount)"))
        with pytest.raises(UsageError, match="parameter 'shfts' that pass 'roll' does not have"):
            parse_bind("m::o=roll(shfts=amount)").check(signature(roll).names)
