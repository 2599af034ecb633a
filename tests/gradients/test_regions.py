"""``rewrite --check-gradients``: a model's own placeholders, as they stand in the rewritten model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper

import rewriter
from rewriter import Case, Placeholder, Value, f32
from rewriter.cli import run
from rewriter.errors import GradientError, UnprovedError, UsageError
from rewriter.gradients.result import AGREES, NO_GRADIENT, NOT_CHECKED, SURROGATE
from rewriter.torch import placeholder
from rewriter.torch.operator import PlaceholderFunction
from tests.gradients.test_operator import attend_function, swish, swish_backward
from tests.torch import exports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rewriter.placeholder import Builder

FLOAT, DOUBLE, HALF, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT64


def model(
    *nodes: Any,
    inputs: dict[str, tuple[int, list[Any]]],
    outputs: dict[str, tuple[int, list[Any]]],
    tensors: dict[str, Any] | None = None,
    functions: tuple[Any, ...] = (),
) -> ModelProto:
    def infos(values: dict[str, tuple[int, list[Any]]]) -> list[Any]:
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in values.items()]

    graph = helper.make_graph(
        list(nodes),
        "test",
        infos(inputs),
        infos(outputs),
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (tensors or {}).items()],
    )
    domains = {"": 17, "com.example": 1, **({"local": 1} if functions else {})}
    imports = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=list(functions))


def node(
    op_type: str, inputs: list[str], outputs: list[str], domain: str = "com.example", **attributes: Any
) -> Any:
    return helper.make_node(op_type, inputs, outputs, name=f"the_{op_type}", domain=domain, **attributes)


def one(
    op_type: str, *, kind: int = FLOAT, shape: tuple[Any, ...] = ("n", 6), **attributes: Any
) -> ModelProto:
    """A model of one placeholder, x → y."""
    sides = {name: (kind, list(shape)) for name in ("x", "y")}
    return model(
        node(op_type, ["x"], ["y"], **attributes), inputs={"x": sides["x"]}, outputs={"y": sides["y"]}
    )


def check(source: ModelProto, **options: Any) -> list[dict[str, Any]]:
    report = rewriter.rewrite(source, check_gradients=True, simplify=False, **options)
    assert report.outcome == "verified"
    assert report.verification is not None
    found: list[dict[str, Any]] = report.verification["gradients"]
    return found


class OneInput(Placeholder):
    """A pass of one input; subclasses say what it computes."""

    def reference(self, x: Any) -> Any:
        raise NotImplementedError

    def decompose(self, g: Builder, x: Value) -> Any:
        raise NotImplementedError

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3))


class TestReference:
    def test_agrees(self) -> None:
        (found,) = check(one("Swish", beta=1.5))
        assert (found["status"], found["how"], found["samples"]) == (AGREES, "alone", 2)
        assert found["trained"] == "the reference of pass 'swish'"
        (entry,) = found["inputs"]
        assert entry["name"] == "x"
        assert entry["max_scaled"] < 1e-5
        assert entry["max_numeric"] < 1e-6

    @pytest.mark.parametrize("kind", [HALF, DOUBLE])
    def test_other_floating_point_types(self, kind: int) -> None:
        if kind == DOUBLE:
            (found,) = check(one("Roll", kind=kind, shifts=[1], dims=[1]))
        else:
            (found,) = check(one("Swish", kind=kind))
        assert found["status"] == AGREES

    def test_integers_have_no_gradient(self) -> None:
        (found,) = check(one("Roll", kind=INT64, shifts=[1], dims=[1]))
        assert (found["status"], found["reason"]) == (
            NO_GRADIENT,
            "its results are no floating-point numbers",
        )

    def test_weights_are_inputs_too(self) -> None:
        source = model(
            node("GroupNorm", ["x", "w", "b"], ["y"], num_groups=3),
            inputs={"x": (FLOAT, ["n", 6, 5])},
            outputs={"y": (FLOAT, ["n", 6, 5])},
            tensors={"w": np.linspace(0.5, 2, 6, dtype=np.float32), "b": np.zeros(6, np.float32)},
        )
        (found,) = check(source)
        assert [entry["name"] for entry in found["inputs"]] == ["x", "weight", "bias"]

    def test_running_statistics_are_not_trained(self) -> None:
        statistics = {name: np.linspace(0.5, 2, 3, dtype=np.float32) for name in ("mean", "var")}
        source = model(
            node("InstanceNorm", ["x", "", "", "mean", "var"], ["y"], use_input_stats=0),
            inputs={"x": (FLOAT, ["n", 3, 4])},
            outputs={"y": (FLOAT, ["n", 3, 4])},
            tensors=statistics,
        )
        # Two public functions of that name have different orders.
        order = "com.example::InstanceNorm=instance_norm(running_mean=$3,running_var=$4)"
        (found,) = check(source, bind=order)
        assert found["status"] == AGREES
        assert [note.rpartition(" ")[2] for note in found["notes"]] == ["'running_mean'", "'running_var'"]
        assert not any(entry["problem"] for entry in found["inputs"])

    def test_where_pytorch_does_not_differentiate(self) -> None:
        source = model(
            node("GroupNorm", ["x", "", "b"], ["y"], num_groups=4),
            inputs={"x": (FLOAT, ["n", 4, 5]), "b": (FLOAT, [4])},
            outputs={"y": (FLOAT, ["n", 4, 5])},
        )
        (found,) = check(source)
        # Of 2.13: "tensor does not have a device".
        assert found["status"] in (AGREES, NOT_CHECKED)
        assert found["status"] == AGREES or "PyTorch does not differentiate the reference" in found["reason"]

    def test_weights_that_a_decomposition_has_folded_are_not(self) -> None:
        class Scaled(OneInput):
            matches = ("Scaled",)

            def reference(self, x: Any, w: Any) -> Any:
                return x * (w * w)

            def decompose(self, g: Builder, x: Value, w: Value) -> Value:
                assert w.constant is not None
                return x * g.const(np.square(w.constant), x)

            def cases(self) -> Iterator[Case]:
                yield Case(f32(2, 3), f32(3))

        source = model(
            node("Scaled", ["x", "w"], ["y"]),
            inputs={"x": (FLOAT, ["n", 3])},
            outputs={"y": (FLOAT, ["n", 3])},
            tensors={"w": np.asarray([1, 2, 3], np.float32)},
        )
        (found,) = check(source, passes=[Scaled])
        assert (found["status"], [entry["name"] for entry in found["inputs"]]) == (AGREES, ["x"])

    def test_a_reference_without_a_gradient_is_noted(self) -> None:
        class Frozen(OneInput):
            matches = ("Frozen",)

            def reference(self, x: Any) -> Any:
                return (x * x).detach()

            def decompose(self, g: Builder, x: Value) -> Value:
                return x * x

        (found,) = check(one("Frozen"), passes=[Frozen])
        assert found["status"] == NO_GRADIENT
        assert "no way from its results" in found["reason"]

    def test_a_reference_with_another_gradient_is_an_error(self) -> None:
        class Half(OneInput):
            matches = ("Half",)

            def reference(self, x: Any) -> Any:
                return x * x.detach()

            def decompose(self, g: Builder, x: Value) -> Value:
                return x * x

        with pytest.raises(GradientError, match=r"'x' is 0\.5 times what is due"):
            check(one("Half"), passes=[Half])

    def test_an_autograd_function_behind_the_reference_is_named(self) -> None:
        class Negated(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                return x.exp()

            @staticmethod
            def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
                return -grad * 0

        class Exp(OneInput):
            matches = ("MyExp",)

            def reference(self, x: Any) -> Any:
                return Negated.apply(x)

            def decompose(self, g: Builder, x: Value) -> Value:
                return g.op("Exp", x)

        with pytest.raises(
            GradientError, match=r"the backward of Negated, behind the reference of pass 'exp'.*zero"
        ):
            check(one("MyExp"), passes=[Exp])

    def test_the_term_of_one_result(self) -> None:
        class Hand(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> Any:
                ctx.save_for_backward(x)
                return x.amin(1), x.amax(1)

            @staticmethod
            def backward(ctx: Any, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
                (x,) = ctx.saved_tensors
                return (x == x.amin(1, keepdim=True)) * low[:, None]

        class MinMax(OneInput):
            matches = ("MinMax",)
            outputs = ("low", "high")

            def reference(self, x: Any) -> Any:
                return Hand.apply(x)

            def decompose(self, g: Builder, x: Value) -> Any:
                return tuple(g.op(op, x, axes=[1], keepdims=0) for op in ("ReduceMin", "ReduceMax"))

        def source(*names: str) -> ModelProto:
            return model(
                node("MinMax", ["x"], list(names)),
                inputs={"x": (FLOAT, ["n", 6])},
                outputs={name: (FLOAT, ["n"]) for name in names if name},
            )

        with pytest.raises(GradientError, match="'x' misses the term of result 'high'"):
            check(source("low", "high"), passes=[MinMax])
        assert check(source("low"), passes=[MinMax])[0]["status"] == AGREES
        with pytest.raises(GradientError, match="'x' is zero everywhere"):
            check(source("", "high"), passes=[MinMax])

    def test_a_graph_that_could_not_be_trained_on_is_a_warning(self) -> None:
        class Guarded(OneInput):
            """√x where x is positive, else 0."""

            matches = ("Guarded",)

            def reference(self, x: Any) -> Any:
                return torch.where(x > 0, x.clamp(min=1e-30), 1.0).sqrt() * (x > 0)

            def decompose(self, g: Builder, x: Value) -> Value:
                positive = g.greater(x, 0.0)
                return g.where_(positive, g.op("Sqrt", x * g.cast(positive, x.dtype)), 0.0)

        report = rewriter.rewrite(one("Guarded"), check_gradients=True, simplify=False, passes=[Guarded])
        assert report.verification is not None
        assert report.verification["gradients"][0]["status"] == AGREES
        assert any(
            "by autograd through the delivered graph is NaN" in text
            for text in report.verification["warnings"]
        )

    def test_values_that_cannot_be_drawn_are_the_model_s_own(self) -> None:
        class Pick(OneInput):
            """Rows of x; indices are those of rows from the 100th on."""

            matches = ("Pick",)

            def reference(self, x: Any, index: Any) -> Any:
                return x[index - 100]

            def decompose(self, g: Builder, x: Value, index: Value) -> Value:
                return g.gather(x, index - 100, axis=0)

            def cases(self) -> Iterator[Case]:
                yield Case(f32(3, 2), rewriter.i64(2, value=(100, 102)))

        source = model(
            node("Add", ["index", "hundred"], ["moved"], domain=""),
            node("Pick", ["x", "moved"], ["y"]),
            inputs={"x": (FLOAT, [3, 2]), "index": (INT64, [4])},
            outputs={"y": (FLOAT, [4, 2])},
            tensors={"hundred": np.asarray(100, np.int64)},
        )
        (found,) = check(source, passes=[Pick], input_ranges={"index": (0, 2)})
        assert (found["status"], found["samples"]) == (AGREES, 1)

    def test_a_surrogate_is_noted(self) -> None:
        class Quantise(OneInput):
            matches = ("Quantise",)

            def reference(self, x: Any) -> Any:
                return x + (x.round() - x).detach()

            def decompose(self, g: Builder, x: Value) -> Value:
                return g.op("Round", x)

        with pytest.raises(GradientError, match="where none is due"):
            check(one("Quantise"), passes=[Quantise])
        Quantise.surrogate_gradient = "straight-through"
        (found,) = check(one("Quantise"), passes=[Quantise])
        assert (found["status"], found["reason"]) == (SURROGATE, "straight-through")

    def test_what_cannot_be_interpreted_is_told(self) -> None:
        class Runtime(OneInput):
            matches = ("OfRuntime",)

            def reference(self, x: Any) -> Any:
                return x * torch.sigmoid(1.5 * x)

            def decompose(self, g: Builder, x: Value) -> Value:
                return g.op("QuickGelu", x, domain="com.microsoft", alpha=1.5)

        report = rewriter.rewrite(one("OfRuntime"), check_gradients=True, simplify=False, passes=[Runtime])
        assert report.verification is not None
        (found,) = report.verification["gradients"]
        assert (found["status"], found["not_interpreted"]) == (NOT_CHECKED, "com.microsoft::QuickGelu")
        assert "no gradient was checked" in report.verification["warnings"]
        assert report.manifest is not None
        assert len(report.manifest["verification"]["gradients"]["not_checked"]) == 1


#: What is said, and a backward of swish that deserves it.
WRONG: list[tuple[str, Callable[..., Any]]] = [
    ("'x' has the wrong sign", lambda ctx, grad: -swish_backward(ctx, grad)),
    ("'x' is 2 times what is due", lambda ctx, grad: 2 * swish_backward(ctx, grad)),
    ("'x' is None", lambda ctx, grad: None),
    ("a term is missing", lambda ctx, grad: grad * torch.sigmoid(ctx.inputs.x)),
    ("does not depend on the gradient", lambda ctx, grad: swish_backward(ctx, torch.ones_like(grad))),
    ("invalid gradient", lambda ctx, grad: swish_backward(ctx, grad)[:1, :2]),
    ("returned 2 gradients for 1", lambda ctx, grad: (grad, grad)),
]


class TestOperators:
    """Placeholders that an operator of one's own left; the built-in pass knows nothing of its backward."""

    def test_a_right_backward(self) -> None:
        (found,) = check(one("Swish", beta=1.5), operators=[swish()])
        assert (found["status"], found["trained"]) == (AGREES, "the backward of com.example::Swish")

    @pytest.mark.parametrize(("said", "backward"), WRONG, ids=[said for said, _ in WRONG])
    def test_a_wrong_backward_is_named(self, said: str, backward: Callable[..., Any]) -> None:
        with pytest.raises(GradientError, match=said) as raised:
            check(one("Swish"), operators=[swish(backward)])
        assert "the backward of com.example::Swish" in str(raised.value)
        assert "com.example::Swish 'the_Swish'" in str(raised.value.where)
        assert raised.value.proof is not None
        assert raised.value.proof.verdict == "failed"
        assert raised.value.proof.to_dict()["gradients"][0]["status"] == "differs"

    def test_attributes_go_to_their_parameters(self) -> None:
        def only_for_one(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            gate = torch.sigmoid(ctx.inputs.beta * ctx.inputs.x)
            return grad * (gate + ctx.inputs.x * gate * (1 - gate))

        assert check(one("Swish", beta=1.0), operators=[swish(only_for_one)])[0]["status"] == AGREES
        with pytest.raises(GradientError, match="a term is missing"):
            check(one("Swish", beta=1.5), operators=[swish(only_for_one)])

    def test_an_operator_that_computes_something_else(self) -> None:
        other = PlaceholderFunction(lambda x, beta=1.0: x * torch.sigmoid(2 * x), "com.example::Swish")
        with pytest.raises(GradientError, match="computes something else"):
            check(one("Swish"), operators=[other])

    def test_an_operator_with_other_parameters(self) -> None:
        other = PlaceholderFunction(lambda x: x * torch.sigmoid(x), "com.example::Swish")
        with pytest.raises(UsageError, match="has no parameter 'beta'"):
            check(one("Swish", beta=1.5), operators=[other])

    def test_two_of_one_name(self) -> None:
        with pytest.raises(UsageError, match=r"two operators are called 'com.example::Swish'"):
            check(one("Swish"), operators=[swish(), swish()])

    def test_omitted_and_constant_tensors(self) -> None:
        class Attend(OneInput):
            matches = ("Attend",)

            def reference(self, query: Any, key: Any, bias: Any = None, scale: float = 1.0) -> Any:
                return attend_function(query, key, bias, scale)

            def decompose(
                self, g: Builder, query: Value, key: Value, bias: Value | None = None, scale: float = 1.0
            ) -> Value:
                scores = g.op("MatMul", query, g.transpose(key, [1, 0])) * scale
                return scores if bias is None else scores + bias

            def cases(self) -> Iterator[Case]:
                yield Case(f32(2, 3), f32(2, 3))

        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            grads = [grad @ ctx.inputs.key * ctx.inputs.scale, grad.T @ ctx.inputs.query * ctx.inputs.scale]
            return grads if ctx.inputs.bias is None else [*grads, -grad.sum(0)]

        attend = PlaceholderFunction(attend_function, "com.example::Attend")
        attend.backward(backward)

        def source(*more: str) -> ModelProto:
            return model(
                node("Attend", ["x", "k", *more], ["y"], scale=0.5),
                inputs={"x": (FLOAT, ["n", 3])},
                outputs={"y": (FLOAT, ["n", 4])},
                tensors={"k": np.arange(12, dtype=np.float32).reshape(4, 3), "b": np.ones(4, np.float32)},
            )

        (found,) = check(source(), passes=[Attend], operators=[attend])
        assert [entry["name"] for entry in found["inputs"]] == ["query", "key"]
        with pytest.raises(GradientError, match="'bias' has the wrong sign"):
            check(source("b"), passes=[Attend], operators=[attend])

    def test_a_surrogate_is_noted(self) -> None:
        operator = swish()
        operator.backward(surrogate="a cheaper one")(lambda ctx, grad: grad)
        (found,) = check(one("Swish"), operators=[operator])
        assert (found["status"], found["reason"]) == (SURROGATE, "com.example::Swish: a cheaper one")

    def test_a_pass_whose_reference_calls_the_operator(self) -> None:
        class Own(OneInput):
            matches = ("Own",)
            operator = swish(lambda ctx, grad: -swish_backward(ctx, grad), "com.example::Own")

            def reference(self, x: Any) -> Any:
                return self.operator(x)

            def decompose(self, g: Builder, x: Value) -> Value:
                return x * g.sigmoid(x)

        with pytest.raises(GradientError, match=r"the backward of com.example::Own, behind .* wrong sign"):
            check(one("Own"), passes=[Own])


def limited_function(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(0, 6)


class Limited(OneInput):
    """min(max(x, 0), 6)."""

    matches = ("Limited",)

    def reference(self, x: Any) -> Any:
        return limited_function(x)

    def decompose(self, g: Builder, x: Value) -> Value:
        return g.op("Clip", x, g.const(0.0, x), g.const(6.0, x))


class Probabilities(Limited):
    """The same of what lies between 0 and 1."""

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, draw=lambda rng, shape: rng.uniform(0.1, 0.9, shape)))


class TestOtherScales:
    """What values of a standard normal distribution do not reach."""

    def operator(self, backward: Callable[..., Any]) -> PlaceholderFunction:
        made = PlaceholderFunction(limited_function, "com.example::Limited")
        made.backward(backward)
        return made

    def test_a_limit_that_was_forgotten(self) -> None:
        wrong = self.operator(lambda ctx, grad: grad * (ctx.inputs.x > 0))
        with pytest.raises(GradientError, match=r"gradient of 'x' .*, on other scales\)") as raised:
            check(one("Limited"), passes=[Limited], operators=[wrong])
        assert raised.value.proof is not None
        (found,) = raised.value.proof.to_dict()["gradients"]
        assert found["status"] == "differs"
        assert found["inputs"][0]["problem"]

    def test_a_limit_that_was_not(self) -> None:
        right = self.operator(lambda ctx, grad: grad * ((ctx.inputs.x > 0) & (ctx.inputs.x < 6)))
        (found,) = check(one("Limited"), passes=[Limited], operators=[right])
        assert (found["status"], found["samples"]) == (AGREES, 2)

    def test_not_where_the_pass_draws_otherwise(self) -> None:
        within = self.operator(lambda ctx, grad: grad * (ctx.inputs.x > 0))
        (found,) = check(one("Limited"), passes=[Probabilities], operators=[within])
        assert found["status"] == AGREES


class TestStrings:
    def tagged(self, *, constant: bool) -> ModelProto:
        sides = {"x": (FLOAT, [2, 3])}
        if constant:
            return model(
                node("Tagged", ["x", "tag"], ["y"]),
                inputs=sides,
                outputs={"y": sides["x"]},
                tensors={"tag": np.array(["a"], dtype=object)},
            )
        return model(
            node("Tagged", ["x", "tag"], ["y"]),
            inputs={**sides, "tag": (TensorProto.STRING, [1])},
            outputs={"y": sides["x"]},
        )

    @pytest.mark.parametrize("constant", [False, True])
    def test_text_is_not_checked(self, constant: bool) -> None:
        class Tagged(OneInput):
            matches = ("Tagged",)

            def reference(self, x: Any, tag: Any) -> Any:
                raise NotImplementedError

            def decompose(self, g: Builder, x: Value, tag: Value) -> Value:
                return x + x

            def cases(self) -> Iterator[Case]:
                yield Case(f32(2, 3), f32(1))

        source = self.tagged(constant=constant)
        with pytest.raises(UnprovedError, match="PyTorch has no tensors of strings"):
            rewriter.rewrite(source, check_gradients=True, simplify=False, passes=[Tagged])
        report = rewriter.rewrite(
            source, check_gradients=True, simplify=False, passes=[Tagged], allow_unproved=True
        )
        assert report.verification is not None
        (found,) = report.verification["gradients"]
        assert found["status"] == NOT_CHECKED
        assert found["reason"].startswith(
            "its input 'tag' cannot be given: PyTorch has no tensors of strings"
        )


class TestPlaces:
    def test_equal_regions_are_checked_once(self) -> None:
        source = model(
            node("Swish", ["x"], ["a"]),
            node("Swish", ["a"], ["b"]),
            node("Swish", ["b"], ["y"], beta=2.0),
            inputs={"x": (FLOAT, ["n", 6])},
            outputs={"y": (FLOAT, ["n", 6])},
        )
        assert [found["how"] for found in check(source)] == ["alone", "as another", "alone"]
        with pytest.raises(GradientError, match="2 more of the model's placeholders are wrong"):
            check(source, operators=[swish(lambda ctx, grad: -swish_backward(ctx, grad))])

    def test_in_a_body(self) -> None:
        def branch(name: str, op_type: str) -> Any:
            made = node(op_type, ["x"], [name], **({"shifts": [1], "dims": [1]} if op_type == "Roll" else {}))
            return helper.make_graph([made], name, [], [helper.make_tensor_value_info(name, FLOAT, ["n", 6])])

        source = model(
            node(
                "If",
                ["c"],
                ["y"],
                domain="",
                then_branch=branch("t", "Swish"),
                else_branch=branch("e", "Roll"),
            ),
            inputs={"x": (FLOAT, ["n", 6]), "c": (TensorProto.BOOL, [])},
            outputs={"y": (FLOAT, ["n", 6])},
        )
        assert [found["status"] for found in check(source)] == [AGREES, AGREES]
        with pytest.raises(GradientError, match="wrong sign") as raised:
            check(source, operators=[swish(lambda ctx, grad: -swish_backward(ctx, grad))])
        assert "then_branch" in str(raised.value.where)

    def test_in_a_function(self) -> None:
        inner = node("Swish", ["x"], ["y"])
        inner.attribute.add(name="beta", type=1, ref_attr_name="steepness")
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
        block = helper.make_function("local", "Block", ["x"], ["y"], [inner], imports, ["steepness"])
        source = model(
            node("Block", ["x"], ["y"], domain="local", steepness=1.5),
            inputs={"x": (FLOAT, ["n", 6])},
            outputs={"y": (FLOAT, ["n", 6])},
            functions=(block,),
        )
        (found,) = check(source, operators=[swish()])
        assert (found["status"], found["scope"]) == (AGREES, "function local::Block")
        wrong = swish(lambda ctx, grad: swish_backward(ctx, grad) * (1 if ctx.inputs.beta == 1 else -1))
        with pytest.raises(GradientError, match="wrong sign"):
            check(source, operators=[wrong])

    def test_as_a_function(self) -> None:
        (found,) = check(one("Swish", beta=1.5), operators=[swish()], as_function=True)
        assert found["status"] == AGREES

    @pytest.mark.parametrize("export", [exports.dynamo, exports.legacy], ids=["dynamo=True", "dynamo=False"])
    def test_what_the_exporters_write(self, export: Callable[..., ModelProto]) -> None:
        operator = swish()

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = torch.nn.Linear(8, 8)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                result: torch.Tensor = operator(self.linear(operator(x)), 1.5)
                return result

        source = export(Net(), (torch.randn(2, 8),))
        assert [found["trained"] for found in check(source, operators=[operator])] == [
            "the backward of com.example::Swish"
        ] * 2
        operator.backward(lambda ctx, grad: grad)
        with pytest.raises(GradientError):
            check(source, operators=[operator])


class TestCommand:
    OPERATOR = """
import torch
from rewriter.torch import placeholder

@placeholder("com.example::Swish")
def swish(x: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    return x * torch.sigmoid(beta * x)

@swish.backward
def backward(ctx, grad):
    gate = torch.sigmoid(ctx.inputs.beta * ctx.inputs.x)
    return SIGN * grad * (gate + ctx.inputs.beta * ctx.inputs.x * gate * (1 - gate))
"""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "in.onnx").write_bytes(one("Swish", beta=1.5).SerializeToString())
        return tmp_path

    def operator(self, folder: Path, sign: int) -> str:
        path = folder / "my_net.py"
        path.write_text(self.OPERATOR.replace("SIGN", str(sign)))
        return str(path)

    def run(self, folder: Path, *more: str) -> int:
        return run(
            [
                *(str(folder / name) for name in ("in.onnx", "out.onnx")),
                *("--no-simplify", "--report", str(folder / "r.json")),
                *more,
            ]
        )

    def test_reports_and_stamps(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.run(folder, "--check-gradients", "--operators", self.operator(folder, 1)) == 0
        assert "gradients of 1 × swish: agrees, the backward of com.example::Swish" in capsys.readouterr().out
        report = json.loads((folder / "r.json").read_text())
        assert report["verification"]["gradients"][0]["inputs"][0]["max_numeric"] < 1e-6
        said = report["manifest"]["verification"]["gradients"]
        assert (said["agree"], said["not_checked"], said["not_differentiable"]) == (1, [], 0)
        schema = json.loads((type(folder)(rewriter.__file__).parent / "manifest.schema.json").read_text())
        jsonschema.validate(report["manifest"], schema)
        assert "train with the gradient of what stands here" in rewriter.explain(folder / "out.onnx").text()

    def test_a_wrong_backward_delivers_nothing(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.run(folder, "--check-gradients", "--operators", self.operator(folder, -1)) == 1
        assert "wrong sign" in capsys.readouterr().err
        assert not (folder / "out.onnx").exists()
        report = json.loads((folder / "r.json").read_text())
        assert report["failure"]["code"] == "gradient"
        assert report["verification"]["gradients"][0]["inputs"][0]["kind"] == "sign"

    def test_an_operator_beside_the_pass_is_found(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ops = folder / "my_ops.py"
        ops.write_text(
            self.OPERATOR.replace("SIGN", "-1")
            + """
from rewriter import Case, Placeholder, Value, f32

class MySwish(Placeholder):
    matches = ("com.example::Swish",)

    def reference(self, x, beta=1.0):
        return x * torch.sigmoid(beta * x)

    def decompose(self, g, x: Value, beta: float = 1.0):
        return x * g.sigmoid(x * beta)

    def cases(self):
        yield Case(f32(2, 3))
"""
        )
        assert self.run(folder, "--passes", str(ops)) == 0
        assert self.run(folder, "--passes", str(ops), "--check-gradients") == 1
        assert "the backward of com.example::Swish" in capsys.readouterr().err

    def test_is_not_asked_for_by_default(self, folder: Path) -> None:
        assert self.run(folder) == 0
        report = json.loads((folder / "r.json").read_text())
        assert report["verification"]["gradients"] == []
        assert "gradients" not in report["manifest"]["verification"]

    def test_flags_that_contradict(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.run(folder, "--check-gradients", "--no-verify") == 2
        assert self.run(folder, "--check-gradients", "--operators", str(folder / "none.py")) == 2
        (folder / "empty.py").write_text("")
        assert self.run(folder, "--check-gradients", "--operators", str(folder / "empty.py")) == 2
        assert "no operator is defined in it" in capsys.readouterr().err

    def test_a_model_without_placeholders(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        plain = model(
            node("Relu", ["x"], ["y"], domain=""), inputs={"x": (FLOAT, [3])}, outputs={"y": (FLOAT, [3])}
        )
        (tmp_path / "in.onnx").write_bytes(plain.SerializeToString())
        assert self.run(tmp_path, "--check-gradients") == 0
        assert "no gradients to check" in capsys.readouterr().out


@placeholder("com.example::Unused")
def unused(x: torch.Tensor) -> torch.Tensor:
    return x


def test_operators_that_the_model_does_not_hold_do_no_harm() -> None:
    assert check(one("Swish"), operators=[unused])[0]["trained"] == "the reference of pass 'swish'"
