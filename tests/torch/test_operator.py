"""Operators made by ``@placeholder``: eager mode, gradients, and the nodes that they become."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from onnx import ModelProto
from torch import Tensor, nn

from rewriter.errors import UsageError
from rewriter.torch import placeholder
from tests.torch import exports
from tests.torch.conftest import attributes, placeholders

Export = Callable[..., ModelProto]


@placeholder("com.example::Roll")
def roll(x, shifts, dims=()):
    return torch.roll(x, shifts, dims)


@placeholder("com.example::Swish")
def swish(x: Tensor, beta: float = 1.0) -> Tensor:
    return x * torch.sigmoid(beta * x)


@swish.backward
def swish_backward(ctx: Any, grad: Tensor) -> Tensor:
    x, beta = ctx.inputs.x, ctx.inputs.beta
    gate = torch.sigmoid(beta * x)
    return grad * (gate + beta * x * gate * (1 - gate))


class Net(nn.Module):
    """Calls ``function`` on its input and returns whatever comes; ``modules`` are those that the function uses."""

    def __init__(self, function: Callable[..., Any], *modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.used = nn.ModuleList(modules)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Any:
        return self.function(x) if y is None else self.function(x, y)


def only(model: ModelProto) -> Any:
    (node,) = placeholders(model)
    return node


def dims_of(value: Any) -> list[int | str]:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


class TestEager:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_is_the_function_bit_for_bit(self, dtype: torch.dtype) -> None:
        x = torch.randn(4, 5).to(dtype)
        assert torch.equal(roll(x, 2, 1), torch.roll(x, 2, 1))
        assert torch.equal(swish(x, beta=1.5), x * torch.sigmoid(1.5 * x))

    def test_arguments_are_python_s_own(self) -> None:
        x = torch.arange(6.0).reshape(2, 3)
        assert torch.equal(roll(x, shifts=[1, 2], dims=[0, 1]), torch.roll(x, [1, 2], [0, 1]))
        assert torch.equal(roll(x, 4), torch.roll(x, 4))
        with pytest.raises(TypeError, match="shifts"):
            roll(x)

    def test_keeps_name_and_docstring(self) -> None:
        @placeholder("com.example::Documented")
        def documented(x: Tensor) -> Tensor:
            """What it does."""
            return x

        assert documented.__name__ == "documented"
        assert documented.__doc__ == "What it does."
        assert documented.qualified_name == "com.example::Documented"

    def test_autograd_s_gradient(self) -> None:
        x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda t: roll(t, [1, 5], [0, -1]), (x,))
        assert torch.autograd.gradgradcheck(lambda t: roll(t * t, 1, 0), (x,))

    def test_its_own_gradient(self) -> None:
        x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        for beta in (1.0, -0.7):
            assert torch.autograd.gradcheck(lambda t, b=beta: swish(t, b), (x,))
            assert torch.autograd.gradgradcheck(lambda t, b=beta: swish(t, b), (x,))

    def test_its_own_gradient_is_the_one_used(self) -> None:
        @placeholder("com.example::Round")
        def straight_through(x: Tensor) -> Tensor:
            return torch.round(x)

        @straight_through.backward
        def _(ctx: Any, grad: Tensor) -> Tensor:
            return grad

        x = torch.tensor([0.2, 1.7], requires_grad=True)
        straight_through(x).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [1.0, 1.0]  # autograd's would be 0

    def test_gradients_of_several_tensors_and_results(self) -> None:
        @placeholder("com.example::Mix")
        def mix(a: Tensor, mask: Tensor | None, b: Tensor, scale: float) -> tuple[Tensor, Tensor]:
            return a * b * scale, (a + b).argmax(-1)

        @mix.backward
        def _(ctx: Any, grad: Tensor, _indices: Tensor) -> tuple[Tensor, Tensor]:
            assert ctx.needs_input_grad == (True, True)
            assert ctx.inputs.mask is None
            assert len(ctx.outputs) == 2
            return grad * ctx.inputs.b * ctx.inputs.scale, grad * ctx.inputs.a * ctx.inputs.scale

        a = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
        b = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
        assert not mix(a, None, b, 2.0)[1].requires_grad
        assert torch.autograd.gradcheck(lambda p, q: mix(p, None, q, 2.0)[0], (a, b))

    def test_a_backward_that_forgets_a_gradient_is_refused(self) -> None:
        @placeholder("com.example::Product")
        def product(a: Tensor, b: Tensor) -> Tensor:
            return a * b

        product.backward(lambda ctx, grad: grad * ctx.inputs.b)
        out = product(torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)).sum()
        with pytest.raises(UsageError, match="returned 1 gradients for 2"):
            out.backward()

    def test_no_grad_and_inference_mode(self) -> None:
        x = torch.randn(3, requires_grad=True)
        with torch.no_grad():
            assert not swish(x).requires_grad
        with torch.inference_mode():
            assert torch.equal(swish(x), x * torch.sigmoid(x))

    def test_copies_and_pickles_like_a_function(self) -> None:
        net = Net(swish)
        assert copy.deepcopy(net).function is swish
        assert pickle.loads(pickle.dumps(swish)) is swish

    def test_function_transforms(self) -> None:
        x = torch.randn(3, 4)
        expected = torch.sigmoid(x) + x * torch.sigmoid(x) * (1 - torch.sigmoid(x))
        per_row = torch.func.vmap(torch.func.grad(lambda row: swish(row).sum()))(x)
        torch.testing.assert_close(per_row, expected)

    def test_results_are_freed(self) -> None:
        x = torch.randn(3, requires_grad=True)
        y = swish(x)
        seen = weakref.ref(y)
        gc.disable()
        try:
            del y
            assert seen() is None
        finally:
            gc.enable()

    def test_trains_on_another_thread_during_an_export(self) -> None:
        """``is_in_onnx_export`` is one flag for the process: other threads' values must not become stand-ins."""
        x = torch.randn(3, requires_grad=True)
        for export in (exports.dynamo, exports.legacy):
            found: list[Tensor] = []

            def train(results: list[Tensor] = found) -> None:
                y = swish(x)
                y.sum().backward()
                results.append(y.detach())

            def forward(t: Tensor, train: Callable[[], None] = train) -> Tensor:
                assert torch.onnx.is_in_onnx_export()
                thread = threading.Thread(target=train)
                thread.start()
                thread.join()
                return swish(t)

            model = export(Net(forward), (torch.randn(2, 3),))
            assert only(model).op_type == "Swish"
            assert torch.equal(found[0], (x * torch.sigmoid(x)).detach())


class TestNodes:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
    def test_one_node_with_attributes(self, export: Export, dtype: torch.dtype) -> None:
        model = export(Net(lambda x: roll(x * 2, 2, 1) + 1), (torch.randn(2, 3, 4).to(dtype),))
        node = only(model)
        assert (node.domain, node.op_type) == ("com.example", "Roll")
        assert attributes(node) == {"shifts": 2, "dims": 1}
        assert {(o.domain, o.version) for o in model.opset_import} >= {("com.example", 1)}

    def test_attribute_types(self, export: Export) -> None:
        @placeholder("com.example::Many")
        def many(
            x: Tensor,
            *,
            count: int,
            alpha: float,
            flag: bool,
            mode: str,
            sizes: list[int],
            weights: tuple[float, ...],
            names: list[str],
            flags: list[bool],
        ) -> Tensor:
            return x + count

        arguments: dict[str, Any] = {
            "count": -3,
            "alpha": 2,  # a whole number in a parameter declared float is a float in the file
            "flag": True,
            "mode": "wrap",
            "sizes": torch.Size([1, 2]),
            "weights": (1, 2.5),
            "names": ["a", "b"],
            "flags": [True, False],
        }
        node = only(export(Net(lambda x: many(x, **arguments)), (torch.randn(2, 3),)))
        found = attributes(node)
        assert found == {
            "count": -3,
            "alpha": 2.0,
            "flag": 1,
            "mode": b"wrap",
            "sizes": [1, 2],
            "weights": [1.0, 2.5],
            "names": [b"a", b"b"],
            "flags": [1, 0],
        }
        assert isinstance(found["alpha"], float)
        assert list(node.input) == ["x"]

    def test_numpy_values_are_numbers(self, export: Export) -> None:
        node = only(export(Net(lambda x: roll(x, np.int64(1), np.array([1])[0])), (torch.randn(2, 3),)))
        assert attributes(node) == {"shifts": 1, "dims": 1}

    def test_none_and_the_empty_list_are_left_out(self, export: Export) -> None:
        for absent in ((), [], None):
            shift = absent if absent is not None else ()
            node = only(export(Net(lambda x, s=shift: roll(x, 1, s)), (torch.randn(2, 3),)))
            assert attributes(node) == {"shifts": 1}

    def test_an_absent_attribute_that_would_mean_the_default_is_refused(self) -> None:
        @placeholder("com.example::Scaled")
        def scaled(x: Tensor, alpha: float | None = 2.0) -> Tensor:
            return x if alpha is None else x * alpha

        with pytest.raises(UsageError, match=r"'alpha' is None.*left out it is 2\.0"):
            exports.legacy(Net(lambda x: scaled(x, None)), (torch.randn(2, 3),))

    def test_omitted_tensors_are_the_empty_name(self, export: Export) -> None:
        @placeholder("com.example::Masked")
        def masked(x: Tensor, mask: Tensor | None, y: Tensor, z: Tensor | None = None) -> Tensor:
            return x + y if mask is None else (x + y) * mask

        between = only(export(Net(lambda x, y: masked(x, None, y)), (torch.randn(2, 3), torch.randn(2, 3))))
        assert len(between.input) == 3
        assert between.input[1] == ""
        given = only(export(Net(lambda x, y: masked(x, y, y)), (torch.randn(2, 3), torch.randn(2, 3))))
        assert len(given.input) == 3
        assert given.input[1] == given.input[2] != ""

    def test_an_unannotated_none_before_a_tensor_is_refused(self) -> None:
        @placeholder("com.example::Unclear")
        def unclear(x, mask=None, y=None):
            return x + y

        with pytest.raises(UsageError, match="'mask' is None and has no annotation"):
            exports.legacy(Net(lambda x: unclear(x, None, x)), (torch.randn(2, 3),))

    def test_several_results(self, export: Export) -> None:
        class Pair(NamedTuple):
            values: Tensor
            indices: Tensor

        @placeholder("com.example::Best")
        def best(x: Tensor) -> Pair:
            return Pair(x.amax(-1), x.argmax(-1))

        def forward(x: Tensor) -> tuple[Tensor, Tensor]:
            result = best(x)
            assert isinstance(result, Pair)
            return result.values + 1, result.indices

        model = export(Net(forward), (torch.randn(2, 3),))
        assert len(only(model).output) == 2
        assert [o.type.tensor_type.elem_type for o in model.graph.output] == [1, 7]

    def test_torch_s_own_named_results(self, export: Export) -> None:
        @placeholder("com.example::CumMax")
        def cummax(x: Tensor, dim: int) -> Any:
            return torch.cummax(x, dim)

        model = export(Net(lambda x: cummax(x, 1).values), (torch.randn(2, 3),))
        assert only(model).op_type == "CumMax"

    def test_a_result_that_is_no_tensor_is_refused(self) -> None:
        @placeholder("com.example::Wrong")
        def wrong(x: Tensor) -> dict[str, Tensor]:
            return {"y": x}

        with pytest.raises(UsageError, match="returned a dict"):
            exports.legacy(Net(lambda x: wrong(x)["y"]), (torch.randn(2, 3),))

    def test_an_argument_that_no_attribute_holds_is_refused(self) -> None:
        @placeholder("com.example::Cast")
        def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
            return x.to(dtype)

        with pytest.raises(UsageError, match=r"'dtype'.*is a dtype"):
            exports.legacy(Net(lambda x: cast(x, torch.float64)), (torch.randn(2, 3),))

    def test_the_function_leaves_nothing_in_the_graph(self, export: Export) -> None:
        """Not even operators that no exporter translates, and whose results' sizes the node's shape comes from."""

        @placeholder("com.example::Inverse")
        def inverse(x: Tensor) -> Tensor:
            return torch.cat([x, torch.linalg.inv(x.transpose(1, 2) @ x)], 1)[:, ::2]

        model = export(Net(inverse), (torch.randn(2, 4, 4),))
        assert [n.op_type for n in model.graph.node] == ["Inverse"]

    def test_with_and_without_its_own_backward_in_training(self, export: Export) -> None:
        layer = nn.Linear(3, 3)
        model = export(Net(lambda x: swish(layer(x), 1.5), layer), (torch.randn(2, 3),))
        assert attributes(only(model)) == {"beta": 1.5}

    def test_an_operator_inside_an_operator_is_one_node(self, export: Export) -> None:
        @placeholder("com.example::Outer")
        def outer(x: Tensor) -> Tensor:
            return swish(roll(x, 1, 1)) * 2

        assert only(export(Net(outer), (torch.randn(2, 3),))).op_type == "Outer"

    def test_dynamo_writes_the_version_of_the_domain(self) -> None:
        @placeholder("com.example.versioned::Op", version=3)
        def versioned(x: Tensor) -> Tensor:
            return x * 2

        imports = {
            o.domain: o.version for o in exports.dynamo(Net(versioned), (torch.randn(2, 3),)).opset_import
        }
        assert imports["com.example.versioned"] == 3

    def test_legacy_takes_the_version_of_the_domain_from_the_export(self) -> None:
        model = exports.legacy(Net(swish), (torch.randn(2, 3),), custom_opsets={"com.example": 4})
        assert {o.domain: o.version for o in model.opset_import}["com.example"] == 4


class TestShapes:
    def test_dynamo_has_symbolic_sizes(self) -> None:
        @placeholder("com.example::Pool")
        def pool(x: Tensor) -> Tensor:
            return nn.functional.avg_pool1d(x, 2, ceil_mode=False)

        length = torch.export.Dim("length", min=4)
        shapes = ({0: torch.export.Dim("batch"), 2: length},)
        model = exports.dynamo(Net(pool), (torch.randn(2, 3, 8),), dynamic_shapes=shapes)
        batch, channels, pooled = dims_of(model.graph.output[0])
        assert (batch, channels) == ("batch", 3)
        assert "length" in str(pooled)

    def test_dynamo_takes_shapes_from_register_fake(self) -> None:
        @placeholder("com.example::Python")
        def python(x: Tensor) -> Tensor:
            return torch.from_numpy(np.sort(x.numpy(), axis=-1))

        @python.register_fake
        def _(x: Tensor) -> Tensor:
            return torch.empty_like(x)

        model = exports.dynamo(Net(python), (torch.randn(2, 3),))
        assert dims_of(model.graph.output[0]) == ["batch", 3]

    def test_dynamo_sizes_that_depend_on_values(self) -> None:
        @placeholder("com.example::Select")
        def select(x: Tensor) -> Tensor:
            return x[x[:, 0] > 0]

        model = exports.dynamo(Net(lambda x: select(x) * 2), (torch.randn(4, 3),))
        assert [n.op_type for n in model.graph.node if n.domain] == ["Select"]
        assert dims_of(model.graph.output[0])[1] == 3

    def test_legacy_keeps_static_sizes_so_that_the_exporter_can_go_on(self) -> None:
        """A group norm is refused by the exporter when it does not know the channels."""
        norm = nn.GroupNorm(2, 4)
        model = exports.legacy(Net(lambda x: norm(roll(x, 1, 2)), norm), (torch.randn(2, 4, 6),))
        info = {v.name: dims_of(v) for v in model.graph.value_info}
        assert info[only(model).output[0]][1:] == [4, 6]

    def test_legacy_invents_no_static_size(self) -> None:
        """A size that is static only for the traced input stays unknown."""

        @placeholder("com.example::Tiled")
        def tiled(x: Tensor) -> Tensor:
            return x.reshape(-1) if x.shape[0] == 2 else x.reshape(-1)[: x.shape[1]]

        model = exports.legacy(Net(lambda x: tiled(x) * 2), (torch.randn(2, 3),))
        (dim,) = dims_of(model.graph.output[0])
        assert isinstance(dim, str)

    def test_legacy_warns_of_nothing_that_the_user_wrote_no_line_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Sizes that are read of a traced tensor are tensors of the trace, and an int of one is a warning."""
        monkeypatch.setattr(exports, "quiet", contextlib.nullcontext)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", torch.jit.TracerWarning)
            model = exports.legacy(Net(lambda x: roll(x, 1, 2) * x.shape[0]), (torch.randn(2, 4, 6),))
        assert dims_of(model.graph.output[0])[1:] == [4, 6]
        assert "Shape" in {node.op_type for node in model.graph.node}  # tracing went on

    def test_legacy_keeps_the_rank_where_the_function_needs_values(self) -> None:
        @placeholder("com.example::Python")
        def python(x: Tensor) -> Tensor:
            return torch.from_numpy(np.sort(x.detach().numpy(), axis=-1))

        model = exports.legacy(Net(lambda x: python(x) * 2), (torch.randn(2, 3),))
        assert len(dims_of(model.graph.output[0])) == 2

    def test_dynamo_never_falls_back_to_tracing_through(self) -> None:
        """The exporter tries again with TorchDynamo when its first way fails; that would leave no placeholder."""

        @placeholder("com.example::Wrong")
        def wrong(x: Tensor) -> dict[str, Tensor]:
            return {"y": x * 2}

        with pytest.raises(torch.onnx.errors.OnnxExporterError, match="returned a dict"):
            exports.dynamo(Net(lambda x: wrong(x)["y"]), (torch.randn(4, 3),))

    def test_a_computed_number_is_an_input(self, export: Export) -> None:
        """A shift of half the (dynamic) length: no attribute could hold it."""
        for shifts in (lambda x: x.shape[0] // 2, lambda x: [x.shape[0] // 2, 1]):
            dims = 0 if isinstance(shifts(torch.ones(2, 3)), int) else [0, 1]
            model = export(Net(lambda x, s=shifts, d=dims: roll(x, s(x), d)), (torch.randn(4, 3),))
            node = only(model)
            assert len(node.input) == 2
            assert attributes(node) == {"dims": dims}


class TestDefinition:
    @pytest.mark.parametrize(
        "name", ["Roll", "::Roll", "aten::Roll", "prim::Roll", "ai.onnx::Roll", "com.example::a b"]
    )
    def test_names_that_are_refused(self, name: str) -> None:
        with pytest.raises(UsageError, match="domain of one's own"):
            placeholder(name)(lambda x: x)

    def test_variadic_functions_are_refused(self) -> None:
        with pytest.raises(UsageError, match="any number of arguments"):
            placeholder("com.example::Any")(lambda *xs: xs[0])
