"""Models with placeholders, run: the expected values are numpy's and torch's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rewriter.verify
from rewriter.errors import BindingError, CannotVerifyError, LeftoverPlaceholderError, UsageError
from rewriter.execution.reference import ReferenceRefused
from rewriter.execution.session import Refused, Session
from rewriter.placeholder import Case, Placeholder, Selection, Value, f32
from rewriter.storage import ModelFile
from rewriter.verify import StandIn, run
from tests.verify.conftest import BOOL, FLOAT, HALF, INT64, example, model, node


class Triple(Placeholder):
    """x · 3 in PyTorch; the decomposition gives something else on purpose: it must not run."""

    matches = ("Triple",)

    def reference(self, x):
        return x * 3

    def decompose(self, g, x: Value):
        return x + 100

    def cases(self):
        yield Case(f32(2, 3))


class Weighted(Placeholder):
    """factor · Σ xᵢ."""

    matches = ("Weighted",)

    def reference(self, *xs, factor=1.0):
        return sum(xs) * factor

    def decompose(self, g, *xs: Value, factor: float = 1.0):
        return xs[0]

    def cases(self):
        yield Case(f32(2, 3), f32(2, 3))


class Extremes(Placeholder):
    """The smallest and the largest of each row, and where the largest is."""

    matches = ("Extremes",)
    outputs = ("low", "high", "at")

    def reference(self, x):
        return x.amin(-1), x.amax(-1), x.argmax(-1)

    def decompose(self, g, x: Value):
        return x, x, x

    def cases(self):
        yield Case(f32(2, 3))


class Scaled(Placeholder):
    """x · scale + bias, both optional."""

    matches = ("Scaled",)

    def reference(self, x, scale=None, bias=None, *, power=1):
        x = x if scale is None else x * scale
        x = x if bias is None else x + bias
        return x**power

    def decompose(
        self, g, x: Value, scale: Value | None = None, bias: Value | None = None, *, power: int = 1
    ):
        return x

    def cases(self):
        yield Case(f32(2, 3))


PASSES = (Triple, Weighted, Extremes, Scaled)


def ran(source, feeds, outputs=None, **more):
    return run(source, feeds, passes=PASSES, outputs=outputs, **more)


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def chain(count):
    """``count`` times a Triple between an Add of 1 and a Relu, with a side branch to the end."""
    nodes = []
    value = "x"
    for i in range(count):
        nodes += [
            node("Add", [value, "one"], [f"a{i}"]),
            example("Triple", [f"a{i}"], [f"t{i}"]),
            node("Relu", [f"t{i}"], [f"r{i}"]),
        ]
        value = f"r{i}"
    nodes.append(node("Add", [value, "a0"], ["y"]))
    return model(
        *nodes,
        inputs={"x": (FLOAT, ["n", 4])},
        outputs={"y": (FLOAT, ["n", 4])},
        tensors={"one": np.float32(1)},
        domains=["com.example"],
    )


def chain_in_numpy(x, count):
    value = x
    for _ in range(count):
        value = np.maximum((value + np.float32(1)) * np.float32(3), 0)
    return value + (x + np.float32(1))


def test_the_references_stand_in():
    x = floats(5, 4)
    found = ran(chain(3), {"x": x})
    assert list(found) == ["y"]
    np.testing.assert_allclose(found["y"], chain_in_numpy(x, 3), rtol=1e-6)


def test_any_value_of_the_main_graph_can_be_asked_for():
    x = floats(2, 4)
    found = ran(chain(2), {"x": x}, outputs=["t1", "a0", "x", "one", "y"])
    assert list(found) == ["t1", "a0", "x", "one", "y"]
    np.testing.assert_allclose(found["a0"], x + 1)
    np.testing.assert_allclose(found["t1"], (np.maximum((x + 1) * 3, 0) + 1) * 3, rtol=1e-6)
    assert found["x"] is not None
    assert found["one"] == 1


def stand_in(source, **more):
    file = ModelFile.from_proto(source)
    return StandIn(file, file.model, Selection.load(PASSES), **more)


def test_it_is_built_once_and_runs_on_many_inputs(monkeypatch):
    made = []
    original = Session.__init__
    monkeypatch.setattr(
        Session, "__init__", lambda self, *a, **k: (made.append(1), original(self, *a, **k))[1]
    )
    it = stand_in(chain(4))
    for n in (1, 3, 0):
        x = floats(n, 4, seed=n)
        np.testing.assert_allclose(it.run({"x": x})["y"], chain_in_numpy(x, 4), rtol=1e-6)
    # one for each level between the placeholders, whatever the number of nodes and runs
    assert len(made) == 5


def test_placeholders_side_by_side_share_their_level(monkeypatch):
    made = []
    original = Session.__init__
    monkeypatch.setattr(
        Session, "__init__", lambda self, *a, **k: (made.append(1), original(self, *a, **k))[1]
    )
    nodes = [node("Neg", ["x"], [f"n{i}"]) for i in range(20)]
    nodes += [example("Triple", [f"n{i}"], [f"t{i}"]) for i in range(20)]
    nodes.append(node("Sum", [f"t{i}" for i in range(20)], ["y"]))
    source = model(*nodes, inputs={"x": (FLOAT, [2])}, outputs={"y": (FLOAT, [2])}, domains=["com.example"])
    x = np.array([1, -2], np.float32)
    np.testing.assert_allclose(stand_in(source).run({"x": x})["y"], -60 * x)
    assert len(made) == 2


def test_variadic_inputs_parameters_and_a_literal_constant():
    source = model(
        node("Constant", [], ["c"], value=numpy_helper.from_array(np.array([10, 20], np.float32))),
        example("Weighted", ["x", "c", "x"], ["y"], factor=0.5),
        inputs={"x": (FLOAT, [2])},
        outputs={"y": (FLOAT, [2])},
        domains=["com.example"],
    )
    np.testing.assert_allclose(ran(source, {"x": np.array([1, 2], np.float32)})["y"], [6, 12])


def test_several_outputs_unused_and_unnamed_ones():
    def extremes(*names, outputs):
        return model(
            example("Extremes", ["x"], list(names)),
            inputs={"x": (FLOAT, ["n", 3])},
            outputs=outputs,
            domains=["com.example"],
        )

    x = floats(4, 3)
    found = ran(
        extremes("low", "high", "at", outputs={"at": (INT64, ["n"]), "low": (FLOAT, ["n"])}), {"x": x}
    )
    assert list(found) == ["at", "low"]
    np.testing.assert_array_equal(found["at"], x.argmax(-1))
    assert found["at"].dtype == np.int64
    np.testing.assert_array_equal(found["low"], x.min(-1))
    found = ran(extremes("", "high", outputs={"high": (FLOAT, ["n"])}), {"x": x})
    np.testing.assert_array_equal(found["high"], x.max(-1))


def test_optional_inputs_that_are_left_out():
    source = model(
        example("Scaled", ["x", "", "b"], ["y"], power=2),
        inputs={"x": (FLOAT, [2]), "b": (FLOAT, [2])},
        outputs={"y": (FLOAT, [2])},
        domains=["com.example"],
    )
    found = ran(source, {"x": np.array([1, 2], np.float32), "b": np.array([3, 3], np.float32)})
    np.testing.assert_allclose(found["y"], [16, 25])


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.int64, np.uint8, ml_dtypes.bfloat16])
def test_element_types_pass_through(dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    source = model(
        node("Reshape", ["x", "shape"], ["r"]),
        example("Triple", ["r"], ["t"]),
        node("Identity", ["t"], ["y"]),
        inputs={"x": (kind, [2, 2])},
        outputs={"y": (kind, [4])},
        tensors={"shape": np.array([4])},
        domains=["com.example"],
    )
    found = ran(source, {"x": np.array([[1, 2], [3, 4]], dtype)})["y"]
    assert found.dtype == dtype
    assert found.astype(float).tolist() == [3, 6, 9, 12]


def test_an_empty_tensor():
    found = ran(chain(1), {"x": np.zeros((0, 4), np.float32)})["y"]
    assert found.shape == (0, 4)
    assert found.dtype == np.float32


def test_sequences_between_the_parts():
    source = model(
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("SequenceLength", ["s"], ["n"]),
        node("Cast", ["n"], ["f"], to=FLOAT),
        example("Triple", ["f"], ["t"]),
        node("Cast", ["t"], ["i"], to=INT64),
        node("Sub", ["i", "five"], ["at"]),
        node("SequenceAt", ["s", "at"], ["y"]),
        node("SequenceInsert", ["s", "t"], ["longer"]),
        inputs={"x": (FLOAT, [2])},
        outputs={"y": (FLOAT, [2])},
        tensors={"five": np.array(5)},
        domains=["com.example"],
    )
    x = np.array([4, 7], np.float32)
    found = ran(source, {"x": x}, outputs=["y", "longer"])
    np.testing.assert_array_equal(found["y"], x)
    assert [item.tolist() for item in found["longer"]] == [[4, 7], [4, 7], 6]


@pytest.mark.parametrize("items", [[[1.0], [2.0, 3.0]], []])
def test_a_sequence_as_an_input(items):
    source = model(
        node("SequenceInsert", ["s", "x"], ["longer"]),
        example("Triple", ["x"], ["t"]),
        node("SequenceInsert", ["longer", "t"], ["y"]),
        inputs={"x": (FLOAT, [1])},
        outputs={"y": (FLOAT, [1])},
        domains=["com.example"],
    )
    s = onnx.ValueInfoProto(name="s")
    s.type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None)))
    source.graph.input.insert(0, s)
    source.graph.output[0].type.CopyFrom(s.type)
    found = ran(source, {"s": [np.array(i, np.float32) for i in items], "x": np.array([5], np.float32)})["y"]
    assert [item.tolist() for item in found] == [*items, [5.0], [15.0]]


def test_strings_between_the_parts():
    source = model(
        node("Cast", ["x"], ["text"], to=TensorProto.STRING),
        example("Triple", ["x"], ["t"]),
        node("Cast", ["t"], ["more"], to=TensorProto.STRING),
        node("Concat", ["text", "more", "given"], ["y"], axis=0),
        inputs={"x": (INT64, [2]), "given": (TensorProto.STRING, [1])},
        outputs={"y": (TensorProto.STRING, [5])},
        domains=["com.example"],
    )
    found = ran(source, {"x": np.array([1, 2]), "given": np.array(["ü"], object)})["y"]
    assert found.tolist() == ["1", "2", "3", "6", "ü"]


def test_an_optional_without_a_value():
    source = model(
        node("OptionalHasElement", ["o"], ["has"]),
        node("Cast", ["has"], ["f"], to=FLOAT),
        node("Add", ["f", "x"], ["a"]),
        example("Triple", ["a"], ["y"]),
        inputs={"x": (FLOAT, [1])},
        outputs={"y": (FLOAT, [1])},
        domains=["com.example"],
    )
    o = onnx.ValueInfoProto(name="o")
    o.type.CopyFrom(helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, None)))
    source.graph.input.append(o)
    x = np.array([1], np.float32)
    assert ran(source, {"x": x, "o": None})["y"].tolist() == [3]
    assert ran(source, {"x": x, "o": x})["y"].tolist() == [6]


# --- bodies ---------------------------------------------------------------------------------------------------


def body(nodes, inputs, outputs, name="body", tensors=()):
    return helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in outputs.items()],
        list(tensors),
    )


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_of_an_if(flag):
    one = body([example("Triple", ["r"], ["t"])], {}, {"t": (FLOAT, None)}, "then")
    other = body([node("Neg", ["r"], ["m"])], {}, {"m": (FLOAT, None)}, "else")
    source = model(
        node("Relu", ["x"], ["r"]),
        node("If", ["c"], ["z"], then_branch=one, else_branch=other),
        node("Add", ["z", "x"], ["y"]),
        inputs={"x": (FLOAT, [3]), "c": (BOOL, [])},
        outputs={"y": (FLOAT, [3])},
        domains=["com.example"],
    )
    x = np.array([-1, 2, 3], np.float32)
    expected = np.maximum(x, 0) * (3 if flag else -1) + x
    np.testing.assert_allclose(ran(source, {"x": x, "c": np.array(flag)})["y"], expected)


def loop(trips, condition, *, opset=17):
    """v ← 3·v + w, collecting v; goes on while the sum of v is below 1000."""
    inner = body(
        [
            example("Triple", ["v"], ["t"]),
            node("Add", ["t", "w"], ["next"]),
            node("ReduceSum", ["next"], ["total"], keepdims=0),
            node("Less", ["total", "limit"], ["go"]),
            node("Cast", ["i"], ["turn"], to=FLOAT),
            node("Add", ["next", "turn"], ["seen"]),
        ],
        {"i": (INT64, []), "going": (BOOL, []), "v": (FLOAT, [2])},
        {"go": (BOOL, []), "next": (FLOAT, [2]), "seen": (FLOAT, [2])},
        tensors=[numpy_helper.from_array(np.float32(1000), "limit")],
    )
    heads = ["m" if trips is not None else "", "c" if condition is not None else ""]
    tensors = {} if trips is None else {"m": np.array(trips)}
    tensors |= {} if condition is None else {"c": np.array(condition)}
    return model(
        node("Loop", [*heads, "x"], ["last", "all"], body=inner),
        inputs={"x": (FLOAT, [2]), "w": (FLOAT, [2])},
        outputs={"last": (FLOAT, [2]), "all": (FLOAT, ["n", 2])},
        tensors=tensors,
        domains=["com.example"],
        opset=opset,
    )


@pytest.mark.parametrize(
    ("trips", "condition"),
    [(4, None), (4, True), (None, True), (0, True), (3, False), (100, True), (0, None)],
)
def test_a_loop(trips, condition):
    x, w = np.array([1, 2], np.float32), np.array([0.5, -0.5], np.float32)
    seen, value, turn = [], x, 0
    going = condition is None or condition
    while going and (trips is None or turn < trips):
        value = value * 3 + w
        seen.append(value + turn)
        going = value.sum() < 1000
        turn += 1
    found = ran(loop(trips, condition), {"x": x, "w": w})
    np.testing.assert_allclose(found["last"], value)
    np.testing.assert_allclose(found["all"], np.array(seen, np.float32).reshape(-1, 2))
    assert found["all"].dtype == np.float32


def test_a_loop_does_what_onnxruntime_does():
    # the same loop without a placeholder, in onnxruntime itself
    for trips, condition in ((4, None), (100, None), (100, True), (0, None), (2, False)):
        source = loop(trips, condition)
        plain = onnx.ModelProto()
        plain.CopyFrom(source)
        inner = next(a.g for a in plain.graph.node[0].attribute if a.name == "body")
        inner.node[0].CopyFrom(node("Mul", ["v", "three"], ["t"]))
        inner.initializer.append(numpy_helper.from_array(np.float32(3), "three"))
        feeds = {"x": np.array([1, 2], np.float32), "w": np.array([0.5, -0.5], np.float32)}
        with ModelFile.from_proto(plain) as file:
            expected = Session(file, file.model).run(feeds)
        found = ran(source, feeds)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, err_msg=f"{trips} {condition} {name}")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_loop_body_sees_its_number_in_the_rank_it_declares(rank):
    shape = [1] * rank
    inner = body(
        [example("Triple", ["i"], ["t"]), node("Identity", ["going"], ["go"])],
        {"i": (INT64, shape), "going": (BOOL, shape)},
        {"go": (BOOL, shape), "t": (INT64, shape)},
    )
    source = model(
        node("Loop", ["m", ""], ["all"], body=inner),
        inputs={"m": (INT64, [])},
        outputs={"all": (INT64, ["n"])},
        domains=["com.example"],
    )
    found = ran(source, {"m": np.array(3)})["all"]
    np.testing.assert_array_equal(found, np.reshape([0, 3, 6], (3, *shape)))


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("out_axis", [0, 1, -1])
@pytest.mark.parametrize("length", [3, 1, 0])
def test_a_scan(backward, out_axis, length):
    inner = body(
        [
            node("Add", ["state", "item"], ["sum"]),
            example("Triple", ["sum"], ["next"]),
            node("Identity", ["next"], ["seen"]),
        ],
        {"state": (FLOAT, [2]), "item": (FLOAT, [2])},
        {"next": (FLOAT, [2]), "seen": (FLOAT, [2])},
    )
    source = model(
        node(
            "Scan",
            ["s", "x"],
            ["last", "all"],
            body=inner,
            num_scan_inputs=1,
            scan_input_axes=[1],
            scan_input_directions=[backward],
            scan_output_axes=[out_axis],
            scan_output_directions=[1 - backward],
        ),
        inputs={"s": (FLOAT, [2]), "x": (FLOAT, [2, "n"])},
        outputs={"last": (FLOAT, [2]), "all": (FLOAT, None)},
        domains=["com.example"],
    )
    s, x = floats(2), floats(2, length, seed=1)
    state, seen = s, []
    for turn in reversed(range(length)) if backward else range(length):
        state = (state + x[:, turn]) * np.float32(3)
        seen.append(state)
    seen = seen if backward else seen[::-1]
    expected = np.stack(seen, out_axis) if seen else np.zeros((0, 2) if out_axis == 0 else (2, 0))
    found = ran(source, {"s": s, "x": x})
    np.testing.assert_allclose(found["last"], state, rtol=1e-5)
    np.testing.assert_allclose(found["all"], expected, rtol=1e-5)


def test_a_sequence_map():
    inner = body(
        [example("Triple", ["item"], ["t"]), node("Add", ["t", "w"], ["out"])],
        {"item": (FLOAT, None), "w": (FLOAT, None)},
        {"out": (FLOAT, None)},
    )
    source = model(
        node("SequenceConstruct", ["x", "z"], ["s"]),
        node("SequenceMap", ["s", "w0"], ["mapped"], body=inner),
        node("ConcatFromSequence", ["mapped"], ["y"], axis=0),
        inputs={"x": (FLOAT, [2]), "z": (FLOAT, [3]), "w0": (FLOAT, [1])},
        outputs={"y": (FLOAT, [5])},
        domains=["com.example"],
    )
    x, z, w = np.array([1, 2], np.float32), np.array([3, 4, 5], np.float32), np.array([10], np.float32)
    found = ran(source, {"x": x, "z": z, "w0": w})["y"]
    np.testing.assert_allclose(found, np.concatenate([x, z]) * 3 + 10)


def test_bodies_in_bodies_see_what_is_around_them():
    deep = body(
        [example("Weighted", ["v", "x", "big"], ["deep"], factor=2.0)], {}, {"deep": (FLOAT, None)}, "then"
    )
    shallow = body([node("Identity", ["v"], ["same"])], {}, {"same": (FLOAT, None)}, "else")
    inner = body(
        [
            node("Mod", ["i", "two"], ["odd"]),
            node("Cast", ["odd"], ["flag"], to=BOOL),
            node("If", ["flag"], ["next"], then_branch=deep, else_branch=shallow),
            node("Identity", ["going"], ["go"]),
        ],
        {"i": (INT64, []), "going": (BOOL, []), "v": (FLOAT, [512])},
        {"go": (BOOL, []), "next": (FLOAT, [512])},
    )
    source = model(
        node("Loop", ["m", "", "x"], ["y"], body=inner),
        inputs={"x": (FLOAT, [512]), "m": (INT64, [])},
        outputs={"y": (FLOAT, [512])},
        # above the threshold of what stays in the skeleton
        tensors={"two": np.array(2), "big": np.full(512, 7, np.float32)},
        domains=["com.example"],
    )
    x = floats(512)
    value = x
    for turn in range(4):
        value = (value + x + 7) * 2 if turn % 2 else value
    np.testing.assert_allclose(ran(source, {"x": x, "m": np.array(4)})["y"], value, rtol=1e-5)


def test_a_body_without_placeholders_stays_in_its_session():
    plain = [body([node(op, ["t"], [op])], {}, {op: (FLOAT, None)}, op) for op in ("Neg", "Abs")]
    source = model(
        example("Triple", ["x"], ["t"]),
        node("If", ["c"], ["y"], then_branch=plain[0], else_branch=plain[1]),
        inputs={"x": (FLOAT, [2]), "c": (BOOL, [])},
        outputs={"y": (FLOAT, [2])},
        domains=["com.example"],
    )
    x = np.array([-1, 2], np.float32)
    assert ran(source, {"x": x, "c": np.array(True)})["y"].tolist() == [3, -6]
    assert ran(source, {"x": x, "c": np.array(False)})["y"].tolist() == [3, 6]


# --- functions ------------------------------------------------------------------------------------------------


def function(name, inputs, outputs, nodes, attributes=(), defaults=(), opset=17, domain="local"):
    made = helper.make_function(
        domain,
        name,
        inputs,
        outputs,
        nodes,
        [
            helper.make_opsetid("", opset),
            helper.make_opsetid("com.example", 1),
            helper.make_opsetid("local", 1),
        ],
        list(attributes),
    )
    made.attribute_proto.extend(defaults)
    return made


def reference_to(node_proto, name, outer, kind):
    node_proto.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=outer, type=kind))
    return node_proto


def test_functions_with_attributes_defaults_and_omitted_inputs():
    weighted = reference_to(example("Weighted", ["a", "r"], ["w"]), "factor", "f", onnx.AttributeProto.FLOAT)
    inner = function(
        "Inner",
        ["a", "b"],
        ["out"],
        [node("Relu", ["a"], ["r"]), weighted, example("Scaled", ["w", "b"], ["out"])],
        defaults=[helper.make_attribute("f", 10.0)],
    )
    outer = function(
        "Outer",
        ["p"],
        ["q", "s"],
        [
            node("Inner", ["p"], ["h"], domain="local", f=2.0),
            node("Inner", ["h", "p"], ["q"], domain="local"),
            node("Plain", ["q"], ["s"], domain="local"),
        ],
    )
    plain = function("Plain", ["v"], ["neg"], [node("Neg", ["v"], ["neg"])])
    source = model(
        node("Abs", ["x"], ["p"]),
        node("Outer", ["p"], ["y", "z"], domain="local"),
        inputs={"x": (FLOAT, [3])},
        outputs={"y": (FLOAT, [3]), "z": (FLOAT, [3])},
        functions=[inner, outer, plain],
        domains=["com.example", "local"],
    )
    x = floats(3)
    p = np.abs(x)
    h = (p + p) * 2
    y = (h + h) * 10 * p
    found = ran(source, {"x": x})
    np.testing.assert_allclose(found["y"], y, rtol=1e-5)
    np.testing.assert_allclose(found["z"], -y, rtol=1e-5)


def test_a_function_of_another_opset_than_the_model():
    # Squeeze has its axes as an attribute up to opset 12, as an input from 13 on
    old = function(
        "Old",
        ["a"],
        ["b"],
        [node("Squeeze", ["a"], ["s"], axes=[0]), example("Triple", ["s"], ["b"])],
        opset=11,
    )
    source = model(
        node("Old", ["x"], ["t"], domain="local"),
        node("Unsqueeze", ["t", "axes"], ["y"]),
        inputs={"x": (FLOAT, [1, 3])},
        outputs={"y": (FLOAT, [3, 1])},
        tensors={"axes": np.array([1])},
        functions=[old],
        domains=["com.example", "local"],
    )
    x = floats(1, 3)
    np.testing.assert_allclose(ran(source, {"x": x})["y"], x[0][:, None] * 3)


def test_a_body_in_a_function():
    then = body([example("Triple", ["a"], ["t"])], {}, {"t": (FLOAT, None)}, "then")
    other = body([node("Identity", ["a"], ["e"])], {}, {"e": (FLOAT, None)}, "else")
    made = function(
        "Choose", ["flag", "a"], ["b"], [node("If", ["flag"], ["b"], then_branch=then, else_branch=other)]
    )
    source = model(
        node("Choose", ["c", "x"], ["y"], domain="local"),
        inputs={"x": (FLOAT, [3]), "c": (BOOL, [])},
        outputs={"y": (FLOAT, [3])},
        functions=[made],
        domains=["com.example", "local"],
    )
    x = floats(3)
    np.testing.assert_allclose(ran(source, {"x": x, "c": np.array(True)})["y"], x * 3)
    np.testing.assert_allclose(ran(source, {"x": x, "c": np.array(False)})["y"], x)


# --- values from outside ----------------------------------------------------------------------------------------


def test_inner_values_may_be_given():
    it = stand_in(chain(2))
    x = floats(2, 4)
    r0 = floats(2, 4, seed=5)
    found = it.run({"x": x, "r0": r0}, ["y", "t0"])
    np.testing.assert_allclose(found["y"], np.maximum((r0 + 1) * 3, 0) + x + 1, rtol=1e-6)
    np.testing.assert_allclose(found["t0"], (x + 1) * 3, rtol=1e-6)


def test_a_default_may_be_overridden():
    source = model(
        node("Mul", ["x", "w"], ["p"]),
        example("Triple", ["p"], ["y"]),
        inputs={"x": (FLOAT, [2]), "w": (FLOAT, [2])},
        outputs={"y": (FLOAT, [2])},
        tensors={"w": np.array([1, 2], np.float32)},
        domains=["com.example"],
    )
    x = np.array([1, 1], np.float32)
    assert ran(source, {"x": x})["y"].tolist() == [3, 6]
    assert ran(source, {"x": x, "w": np.array([5, 5], np.float32)})["y"].tolist() == [15, 15]


def test_sources(tmp_path):
    weights = floats(64, 64)
    source = model(
        node("MatMul", ["x", "w"], ["p"]),
        example("Triple", ["p"], ["t"]),
        node("Add", ["t", "b"], ["y"]),
        inputs={"x": (FLOAT, ["n", 64])},
        outputs={"y": (FLOAT, ["n", 64])},
        tensors={"w": weights, "b": floats(64, 64, seed=3)[0]},
        domains=["com.example"],
    )
    x = floats(2, 64, seed=9)
    expected = x @ weights * 3 + floats(64, 64, seed=3)[0]
    before = source.SerializeToString()
    onnx.save(source, tmp_path / "inline.onnx")
    other = onnx.ModelProto.FromString(before)
    onnx.save(
        other, tmp_path / "external.onnx", save_as_external_data=True, location="w.data", size_threshold=0
    )
    np.savez(tmp_path / "io.npz", x=x)
    import torch

    for given in (source, tmp_path / "inline.onnx", str(tmp_path / "external.onnx")):
        for feeds in ({"x": x}, {"x": torch.from_numpy(x)}, tmp_path / "io.npz"):
            np.testing.assert_allclose(ran(given, feeds)["y"], expected, rtol=1e-4, atol=1e-4)
    with ModelFile.open(tmp_path / "external.onnx") as file:
        np.testing.assert_allclose(ran(file, {"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
    assert source.SerializeToString() == before


def test_random_operators_draw_the_same_in_every_run():
    source = model(
        node("RandomNormalLike", ["x"], ["noise"]),
        example("Triple", ["noise"], ["y"]),
        inputs={"x": (FLOAT, [8])},
        outputs={"y": (FLOAT, [8])},
        domains=["com.example"],
    )
    it = stand_in(source)
    first, second = (it.run({"x": np.zeros(8, np.float32)})["y"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert len(set(first.tolist())) == 8


# --- what stops it ----------------------------------------------------------------------------------------------


def simple(*nodes, **more):
    return model(
        *nodes, inputs={"x": (FLOAT, [2])}, outputs={"y": (FLOAT, [2])}, domains=["com.example"], **more
    )


def test_an_operator_that_nobody_has():
    source = simple(example("Triple", ["x"], ["t"]), example("Mystery", ["t"], ["y"], name="there"))
    x = {"x": np.ones(2, np.float32)}
    with pytest.raises(LeftoverPlaceholderError, match=r"com\.example::Mystery.*'there'"):
        ran(source, x)
    # what does not need it runs
    assert ran(source, x, outputs=["t"])["t"].tolist() == [3, 3]
    # and so does what is given its result
    assert stand_in(source).run({**x, "t": np.zeros(2, np.float32), "y": np.ones(2, np.float32)}, ["y"])[
        "y"
    ].tolist() == [1, 1]


def test_a_missing_kernel():
    source = model(
        node("Erf", ["x"], ["e"]),
        example("Triple", ["e"], ["y"]),
        inputs={"x": (TensorProto.DOUBLE, [2])},
        outputs={"y": (TensorProto.DOUBLE, [2])},
        domains=["com.example"],
    )
    with pytest.raises(CannotVerifyError, match="Erf"):
        ran(source, {"x": np.ones(2)})


def test_a_reference_that_raises_names_the_node():
    source = simple(
        example("Weighted", ["x", "w"], ["y"], name="here"), tensors={"w": np.ones(3, np.float32)}
    )
    with pytest.raises(ReferenceRefused, match="'here'"):
        ran(source, {"x": np.ones(2, np.float32)})


def test_a_refusal_of_the_runtime():
    source = simple(
        node("Add", ["x", "w"], ["a"]), example("Triple", ["a"], ["y"]), tensors={"w": np.ones(3, np.float32)}
    )
    with pytest.raises(Refused, match="Add"):
        ran(source, {"x": np.ones(2, np.float32)})


def test_a_parameter_that_the_pass_does_not_have():
    with pytest.raises(BindingError, match="speed"):
        ran(simple(example("Triple", ["x"], ["y"], speed=3)), {"x": np.ones(2, np.float32)})


def test_a_parameter_that_is_computed():
    # decomposing needs it before the model runs; here it is known when its turn comes
    source = simple(
        node("Shape", ["x"], ["n"]),
        node("Squeeze", ["n"], ["power"]),
        node("Mul", ["power", "one"], ["p"]),
        example("Scaled", ["x", "", "", "p"], ["y"]),
        tensors={"one": np.array(1)},
    )
    assert ran(source, {"x": np.array([3, 4], np.float32)})["y"].tolist() == [9, 16]


@pytest.mark.parametrize(
    ("feeds", "outputs", "said"),
    [
        ({}, None, "'x'"),
        ({"x": np.ones(2, np.float32), "z": np.ones(2)}, None, "'z'"),
        ({"x": np.ones(2)}, None, "float64"),
        ({"x": np.ones((2, 2), np.float32)}, None, "dims"),
        ({"x": np.ones(2, np.float32)}, ["nothing"], "'nothing'"),
    ],
)
def test_inputs_and_outputs_that_do_not_fit(feeds, outputs, said):
    with pytest.raises(UsageError, match=said):
        ran(simple(example("Triple", ["x"], ["y"])), feeds, outputs)


def test_it_is_public_and_loaded_late():
    assert rewriter.verify.run is run
    with pytest.raises(AttributeError, match="nothing"):
        _ = rewriter.verify.nothing


def test_half_precision_where_torch_has_no_kernel():
    source = model(
        example("Extremes", ["x"], ["low", "", ""]),
        inputs={"x": (HALF, [2, 3])},
        outputs={"low": (HALF, [2])},
        domains=["com.example"],
    )
    x = np.array([[1, 2, 3], [6, 5, 4]], np.float16)
    found = ran(source, {"x": x})["low"]
    assert found.dtype == np.float16
    assert found.tolist() == [1, 4]


@pytest.mark.full
@pytest.mark.parametrize("name", ["rt_detr", "mamba", "convnext", "longformer", "ssd"])
def test_a_whole_architecture_as_it_leaves_pytorch(name):
    import torch

    from tests.models.test_architectures import ARCHITECTURES

    architecture, (opset, *_) = ARCHITECTURES[name]
    module = architecture.module()
    with ModelFile.from_proto(architecture.export(module, opset)) as file:
        it = StandIn(file, file.model, Selection.load(architecture.passes))
        for size in (architecture.example, *architecture.sizes):
            given = architecture.inputs(size)
            with torch.no_grad():
                made = module(*given)
            found = it.run({f"x{i}": tensor.numpy() for i, tensor in enumerate(given)})
            for value, want in zip(found.values(), made if isinstance(made, tuple) else (made,), strict=True):
                scale = max(float(want.abs().max()), 1e-9) if want.numel() else 1.0
                np.testing.assert_allclose(value, want.numpy(), rtol=0, atol=1e-4 * scale)
