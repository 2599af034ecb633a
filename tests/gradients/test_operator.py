"""``operator.check(…)``: right backwards pass, and every way to be wrong is caught and named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from rewriter.errors import BindingError, GradientError, UnknownPassError, UsageError
from rewriter.gradients.result import AGREES, SURROGATE
from rewriter.placeholder import Case, Placeholder, Value, f32
from rewriter.torch import check_gradients, placeholder
from rewriter.torch.operator import PlaceholderFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rewriter.placeholder import Builder

X = torch.tensor([[0.3, -1.2, 2.0, 0.7], [1.1, -0.4, 0.9, -2.2], [0.5, 1.6, -0.8, 0.1]])


def swish_function(x: Tensor, beta: float = 1.0) -> Tensor:
    return x * torch.sigmoid(beta * x)


def swish_backward(ctx: Any, grad: Tensor) -> Tensor:
    x, beta = ctx.inputs.x, ctx.inputs.beta
    gate = torch.sigmoid(beta * x)
    return grad * (gate + beta * x * gate * (1 - gate))


def swish(
    backward: Callable[..., Any] | None = swish_backward, name: str = "com.example::Swish"
) -> PlaceholderFunction:
    operator = PlaceholderFunction(swish_function, name)
    if backward is not None:
        operator.backward(backward)
    return operator


def attend_function(query: Tensor, key: Tensor, bias: Tensor | None = None, scale: float = 1.0) -> Tensor:
    scores = query @ key.transpose(-1, -2) * scale
    return scores if bias is None else scores + bias


def attend_backward(ctx: Any, grad: Tensor) -> Any:
    query, key, bias, scale = ctx.inputs.query, ctx.inputs.key, ctx.inputs.bias, ctx.inputs.scale
    grads = [grad @ key * scale, grad.transpose(-1, -2) @ query * scale]
    return grads if bias is None else [*grads, grad.sum(0, keepdim=True).expand_as(bias)]


def attend(backward: Callable[..., Any] = attend_backward) -> PlaceholderFunction:
    operator = PlaceholderFunction(attend_function, "test.own::Attend")
    operator.backward(backward)
    return operator


def ranges_function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.amin(1), x.amax(1), x.argmax(1)


def ranges_backward(ctx: Any, low: Tensor, high: Tensor, index: Any) -> Tensor:
    x = ctx.inputs.x
    at_low, at_high = x == ctx.outputs[0][:, None], x == ctx.outputs[1][:, None]
    return at_low * low[:, None] + at_high * high[:, None]


def ranges(backward: Callable[..., Any] = ranges_backward) -> PlaceholderFunction:
    operator = PlaceholderFunction(ranges_function, "test.own::Ranges")
    operator.backward(backward)
    return operator


class TestRight:
    def test_against_the_decomposition_that_ships(self) -> None:
        result = swish().check(X, 1.5)
        assert (result.status, result.pass_name, result.decomposition) == (AGREES, "swish", "decompose")
        (entry,) = result.inputs
        assert entry.name == "x"
        assert entry.max_scaled is not None
        assert entry.max_scaled < 1e-5
        assert entry.max_numeric is not None
        assert entry.max_numeric < 1e-6

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_in_the_dtype_of_the_example(self, dtype: torch.dtype) -> None:
        assert swish().check(X.to(dtype)).pass_name == "swish"

    def test_without_a_backward_it_is_autograd_s(self) -> None:
        result = swish(None).check(X)
        assert (result.trained, result.status) == ("autograd", AGREES)

    def test_the_example_is_left_alone(self) -> None:
        x = X.clone().requires_grad_()
        swish().check(x)
        assert torch.equal(x.detach(), X)
        assert x.grad is None

    def test_optional_tensors_and_broadcast_ones(self) -> None:
        attend().check(X, X[:2] + 0.1, torch.ones(1, 2), scale=0.5)
        attend().check(X, X[:2] + 0.1)

    def test_several_results_and_indices(self) -> None:
        ranges().check(X)

    def test_integer_arguments_have_no_gradient(self) -> None:
        @placeholder("test.own::Take")
        def take(x: Tensor, index: Tensor) -> Tensor:
            return x[index]

        @take.backward
        def backward(ctx: Any, grad: Tensor) -> Any:
            return torch.zeros_like(ctx.inputs.x).index_add(0, ctx.inputs.index, grad), None

        assert [entry.name for entry in take.check(X, torch.tensor([2, 0, 2])).inputs] == ["x"]

    def test_an_example_at_a_kink(self) -> None:
        @placeholder("test.own::Relu")
        def relu(x: Tensor) -> Tensor:
            return x.clamp(min=0)

        # At zero PyTorch's own gradient is 1 here, this one's 0; both are right.
        relu.backward(lambda ctx, grad: grad * (ctx.inputs.x > 0))
        assert relu.check(torch.tensor([0.0, 1.0, -1.0, 0.0])).status == AGREES

    def test_a_wrong_gradient_does_not_hide_at_a_kink(self) -> None:
        @placeholder("test.own::Gated")
        def gated(x: Tensor) -> Tensor:
            return x.relu() * torch.sigmoid(x).detach()

        with pytest.raises(GradientError, match="a term is missing"):
            gated.check(torch.tensor([0.0, 1.0, -1.0, 0.0]))

    def test_an_example_at_the_end_of_the_domain(self) -> None:
        @placeholder("test.own::Root")
        def root(x: Tensor) -> Tensor:
            return x.sqrt()

        root.backward(lambda ctx, grad: grad / (2 * ctx.outputs[0]))
        assert root.check(torch.tensor([0.0, 1.0, 4.0])).status == AGREES

    def test_what_pytorch_does_not_differentiate_is_not_the_operator_s_fault(self) -> None:
        @placeholder("test.own::GroupNorm")
        def group_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
            return torch.nn.functional.group_norm(x, 2, weight, bias)

        # PyTorch 2.13 raises in the backward of a group norm with a bias and no weight.
        assert group_norm.check(torch.randn(2, 4, 3), torch.randn(4), torch.randn(4)).status == AGREES

    def test_where_autograd_knows_no_gradient(self) -> None:
        @placeholder("test.own::Square")
        def square(x: Tensor) -> Tensor:
            return torch.from_numpy(x.detach().numpy() ** 2)

        square.backward(lambda ctx, grad: grad * 2 * ctx.inputs.x)
        assert square.check(X).status == AGREES
        square.backward(lambda ctx, grad: grad * -2 * ctx.inputs.x)
        with pytest.raises(GradientError, match="'x' has the wrong sign"):
            square.check(X)

    def test_a_surrogate_is_left_alone(self) -> None:
        @placeholder("test.own::Round")
        def rounded(x: Tensor) -> Tensor:
            return x.round()

        rounded.backward(lambda ctx, grad: grad)
        with pytest.raises(GradientError, match="none is due"):
            rounded.check(X)
        rounded.backward(surrogate="straight-through")(lambda ctx, grad: grad)
        result = rounded.check(X)
        assert (result.status, result.reason) == (SURROGATE, "straight-through")
        rounded.backward(surrogate="straight-through")(lambda ctx, grad: grad.sum())
        with pytest.raises(GradientError, match="shape"):
            rounded.check(X)

    def test_empty_single_and_complex_tensors(self) -> None:
        assert swish().check(torch.zeros(0, 3)).status == AGREES
        assert swish().check(torch.tensor(0.5)).status == AGREES

        @placeholder("test.own::Turned")
        def turned(x: Tensor, by: Tensor) -> Tensor:
            return (x * by).real

        turned.backward(lambda ctx, grad: (grad * ctx.inputs.by.real, None))
        assert turned.check(X, torch.complex(X, X + 1)).status == AGREES

    def test_the_function_is_the_same_as_the_method(self) -> None:
        assert check_gradients(swish(), X, beta=1.5).status == AGREES


#: What is said, and a backward of swish that deserves it.
WRONG: list[tuple[str, Callable[..., Any]]] = [
    (r"'x' has the wrong sign", lambda ctx, grad: -swish_backward(ctx, grad)),
    (r"'x' is 2 times what is due", lambda ctx, grad: 2 * swish_backward(ctx, grad)),
    (r"'x' is 0\.0833333\d+ times", lambda ctx, grad: swish_backward(ctx, grad) / 12),
    (r"'x' is None, where one of up to", lambda ctx, grad: None),
    (r"'x' is zero everywhere", lambda ctx, grad: torch.zeros_like(grad)),
    (r"'x' .* a term is missing", lambda ctx, grad: grad * torch.sigmoid(ctx.inputs.beta * ctx.inputs.x)),
    (r"'x' does not depend on the gradient", lambda ctx, grad: swish_backward(ctx, torch.ones_like(grad))),
    (r"'x' has shape \[4\], and the input \[3, 4\]", lambda ctx, grad: swish_backward(ctx, grad).sum(0)),
    (r"'x' is float32 for an input of float64", lambda ctx, grad: swish_backward(ctx, grad).float()),
    (r"'x' is float64 for an input of float32", lambda ctx, grad: swish_backward(ctx, grad).double()),
    (r"'x' is NaN or infinite in", lambda ctx, grad: swish_backward(ctx, grad) / (ctx.inputs.x > 0)),
    (r"'x' is zero in \d of 12 places", lambda ctx, grad: swish_backward(ctx, grad) * (ctx.inputs.x > 0)),
    (r"'x' has the wrong sign in \d of", lambda ctx, grad: swish_backward(ctx, grad) * ctx.inputs.x.sign()),
    (r"'x' is a float, no tensor", lambda ctx, grad: 0.0),
    (r"returned 2 gradients for 1 tensor", lambda ctx, grad: (swish_backward(ctx, grad), None)),
    (r"changes the gradient that comes in", lambda ctx, grad: swish_backward(ctx, grad.mul_(2)) / 2),
    (r"changes 'x' in place", lambda ctx, grad: (swish_backward(ctx, grad), ctx.inputs.x.zero_())[0]),
    (r"RuntimeError.*view.*not contiguous", lambda ctx, grad: swish_backward(ctx, grad.view(-1).view(3, 4))),
    (r"raised ZeroDivisionError", lambda ctx, grad: 1 / 0),
]


@pytest.mark.parametrize(("said", "backward"), WRONG, ids=[said for said, _ in WRONG])
def test_a_wrong_backward_is_named(said: str, backward: Callable[..., Any]) -> None:
    with pytest.raises(GradientError, match=said) as raised:
        swish(backward).check(X, 1.5)
    assert str(raised.value.where) == "com.example::Swish"
    assert raised.value.remedy


class TestWrongInOneWay:
    def test_inputs_exchanged(self) -> None:
        def backward(ctx: Any, grad: Tensor) -> Any:
            first, second = attend_backward(ctx, grad)
            return second, first

        with pytest.raises(GradientError, match=r"'query' is that of 'key'; .*'key' is that of 'query'"):
            attend(backward).check(X[:, :3], X[:, 1:])

    def test_one_input_of_several(self) -> None:
        def backward(ctx: Any, grad: Tensor) -> Any:
            return [attend_backward(ctx, grad)[0], None, None][: 3 if ctx.inputs.bias is not None else 2]

        with pytest.raises(GradientError) as raised:
            attend(backward).check(X, X + 0.1)
        assert "'key' is None" in str(raised.value)
        assert "'query'" not in str(raised.value)

    def test_transposed(self) -> None:
        @placeholder("test.own::Product")
        def product(x: Tensor, y: Tensor) -> Tensor:
            return x @ y

        product.backward(lambda ctx, grad: ((grad @ ctx.inputs.y.T).T, ctx.inputs.x.T @ grad))
        with pytest.raises(GradientError, match="'x' is transposed"):
            product.check(X[:, :3], X[:, 1:])

    def test_only_without_an_optional_tensor(self) -> None:
        def backward(ctx: Any, grad: Tensor) -> Any:
            found = attend_backward(ctx, grad)
            return found if ctx.inputs.bias is not None else (-found[0], found[1])

        with pytest.raises(GradientError, match=r"'query' has the wrong sign \(with 'bias' omitted\)"):
            attend(backward).check(X, X[:2] + 0.1, torch.ones(1, 2))

    def test_only_where_a_gradient_is_not_needed(self) -> None:
        def backward(ctx: Any, grad: Tensor) -> Any:
            found = attend_backward(ctx, grad)
            return found if all(ctx.needs_input_grad) else [None for _ in found]

        with pytest.raises(GradientError, match=r"is None.*\(with a gradient needed for 'query' only\)"):
            attend(backward).check(X, X[:2] + 0.1)

    def test_a_result_that_is_not_used(self) -> None:
        def backward(ctx: Any, low: Tensor, high: Tensor, index: Any) -> Tensor:
            full = ranges_backward(ctx, low, high, index)
            return full if bool((low != 0).all()) else torch.zeros_like(full)

        with pytest.raises(GradientError, match=r"'x' is zero everywhere.*\(with only result 1 used\)"):
            ranges(backward).check(X)

    def test_the_term_of_a_result(self) -> None:
        def backward(ctx: Any, low: Tensor, high: Tensor, index: Any) -> Tensor:
            return (ctx.inputs.x == ctx.outputs[0][:, None]) * low[:, None]

        with pytest.raises(GradientError, match="'x' misses the term of result 1"):
            ranges(backward).check(X)

    def test_an_expanded_gradient(self) -> None:
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return swish_backward(ctx, grad) if 0 not in grad.stride() else -swish_backward(ctx, grad)

        with pytest.raises(GradientError, match=r"wrong sign.*expanded"):
            swish(backward).check(X)

    def test_an_input_that_is_not_contiguous(self) -> None:
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return swish_backward(ctx, grad) if ctx.inputs.x.is_contiguous() else grad

        with pytest.raises(GradientError, match="'x' not contiguous"):
            swish(backward).check(X)

    def test_autograd_through_a_function_that_detaches(self) -> None:
        @placeholder("test.own::Detached")
        def detached(x: Tensor) -> Tensor:
            return x * torch.sigmoid(x).detach()

        with pytest.raises(GradientError, match=r"'x' .* a term is missing") as raised:
            detached.check(X)
        assert "give it a backward" in str(raised.value)


class Halved(Placeholder):
    """x · sigmoid(β·x) / 2, which is no swish."""

    matches = ("test.own::Swish",)

    def reference(self, x: Any, beta: float = 1.0) -> Any:
        return x * torch.sigmoid(beta * x) / 2

    def decompose(self, g: Builder, x: Value, beta: float = 1.0) -> Value:
        return x * g.sigmoid(x * beta) / 2

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3))


def relu6_function(x: Tensor) -> Tensor:
    return x.clamp(0, 6)


def squared_function(x: Tensor) -> Tensor:
    return torch.where(x > 5, x * x, x)


def own(function: Callable[..., Any], backward: Callable[..., Any] | None = None) -> PlaceholderFunction:
    operator = PlaceholderFunction(function, "test.own::Function")
    if backward is not None:
        operator.backward(backward)
    return operator


class TestOtherScales:
    """What a standard normal example does not reach."""

    @pytest.mark.parametrize("x", [X, X[0], torch.tensor([-0.3]), torch.tensor(0.3), X.abs()])
    @pytest.mark.parametrize(
        ("function", "backward"),
        [
            (relu6_function, lambda ctx, grad: grad * (ctx.inputs.x > 0)),
            (squared_function, lambda ctx, grad: grad),
        ],
    )
    def test_wrong_far_out(
        self, function: Callable[..., Any], backward: Callable[..., Any], x: Tensor
    ) -> None:
        with pytest.raises(GradientError, match=r"gradient of 'x' .* \(on values of other scales\)"):
            own(function, backward).check(x)

    def test_right_far_out(self) -> None:
        def relu6_backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ((ctx.inputs.x > 0) & (ctx.inputs.x < 6))

        def squared_backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * torch.where(ctx.inputs.x > 5, 2 * ctx.inputs.x, 1.0)

        assert own(relu6_function, relu6_backward).check(X).status == AGREES
        assert own(squared_function, squared_backward).check(X).status == AGREES

    def test_formulas_may_overflow(self) -> None:
        def sigmoid(x: Tensor) -> Tensor:
            return 1 / (1 + torch.exp(-x))

        def backward(ctx: Any, grad: Tensor) -> Tensor:
            below = 1 + torch.exp(-ctx.inputs.x)
            return grad * torch.exp(-ctx.inputs.x) / (below * below)  # ∞/∞ from x = -355 on

        assert own(sigmoid, backward).check(10 * X).status == AGREES

    def test_not_where_the_function_is_undefined(self) -> None:
        def logit(p: Tensor) -> Tensor:
            return torch.log(p / (1 - p))

        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad / (ctx.inputs.p - ctx.inputs.p.square()).clamp(min=0)  # another outside of [0, 1]

        assert own(logit, backward).check(torch.sigmoid(X)).status == AGREES

    def test_lengths_stay_lengths(self) -> None:
        def root(x: Tensor) -> Tensor:
            return x.square().sqrt()

        assert own(root, lambda ctx, grad: grad).check(X.abs()).status == AGREES


NAN, INFINITY = float("nan"), float("inf")


class TestNoNumbers:
    """Elements of an example that are NaN or infinite have no derivative, and the others have."""

    @pytest.mark.parametrize("x", [[NAN, 1.0], [INFINITY, 1.0, -2.0], [[NAN, 1.0], [2.0, -INFINITY]]])
    def test_they_are_not_judged(self, x: list[Any]) -> None:
        def root(x: Tensor) -> Tensor:
            return x.abs().sqrt()

        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.inputs.x.sign() / (2 * ctx.inputs.x.abs().sqrt())

        assert own(root).check(torch.tensor(x)).status == AGREES
        assert own(root, backward).check(torch.tensor(x)).status == AGREES
        with pytest.raises(GradientError, match="is 2 times what is due"):
            own(root, lambda ctx, grad: 2 * backward(ctx, grad)).check(torch.tensor(x))

    def test_nor_what_they_reach(self) -> None:
        def shares(x: Tensor) -> Tensor:
            return x / x.sum(-1, keepdim=True)

        assert own(shares).check(torch.tensor([[NAN, 1.0], [2.0, 3.0]])).status == AGREES

    def test_against_the_decomposition(self) -> None:
        assert swish().check(torch.tensor([[NAN, 1.0], [2.0, INFINITY]]), 1.5).pass_name == "swish"

    def test_nan_where_every_result_is_a_number_is_wrong(self) -> None:
        def masked(x: Tensor, bias: Tensor) -> Tensor:
            return torch.nan_to_num(torch.softmax(x + bias, -1))

        def backward(ctx: Any, grad: Tensor) -> Any:
            shares = torch.softmax(ctx.inputs.x + ctx.inputs.bias, -1)
            found = shares * (grad - (grad * shares).sum(-1, keepdim=True))
            return found, found

        bias = torch.zeros_like(X)
        bias[0] = -INFINITY
        with pytest.raises(GradientError, match="'x' is NaN or infinite in 4 of 12 places"):
            own(masked, backward).check(X, bias)


class TestDecomposition:
    def test_another_operator_than_what_ships(self) -> None:
        with pytest.raises(GradientError, match=r"computes something else than .* pass 'halved'"):
            swish(name="test.own::Swish").check(X, passes=[Halved])

    def test_an_operator_without_a_pass(self) -> None:
        result = swish(name="test.own::Swish").check(X)
        assert result.pass_name == ""
        assert "no installed pass takes it" in " ".join(result.notes)

    def test_a_pass_that_is_named_must_take_it(self) -> None:
        with pytest.raises(UsageError, match="no pass of roll takes it"):
            swish(name="test.own::Swish").check(X, passes="roll")
        with pytest.raises(UnknownPassError):
            swish().check(X, passes="no_such_pass")

    def test_a_pass_that_does_not_take_the_parameters(self) -> None:
        @placeholder("com.example::Swish")
        def other(x: Tensor, steepness: float = 2.0) -> Tensor:
            return x * torch.sigmoid(steepness * x)

        assert "steepness" in " ".join(other.check(X).notes)
        with pytest.raises(BindingError):
            other.check(X, passes="swish")


class TestUsage:
    def test_there_must_be_something_to_differentiate_by(self) -> None:
        with pytest.raises(UsageError, match="no argument is a floating-point tensor"):
            swish().check(torch.arange(3))
        with pytest.raises(UsageError, match="is no operator"):
            check_gradients(torch.nn.functional.silu, X)  # type: ignore[arg-type]

    def test_a_function_that_float64_does_not_pass(self) -> None:
        @placeholder("test.own::Fixed")
        def fixed(x: Tensor) -> Tensor:
            return x @ torch.ones(4, 2)

        with pytest.raises(UsageError, match="does not run on float64"):
            fixed.check(X)

    def test_a_function_that_is_random(self) -> None:
        @placeholder("test.own::Dropped")
        def dropped(x: Tensor) -> Tensor:
            return torch.nn.functional.dropout(x, 0.5)

        with pytest.raises(UsageError, match="differ from one call to the next"):
            dropped.check(X)

    def test_the_wrong_arguments_are_python_s_own_error(self) -> None:
        with pytest.raises(TypeError):
            swish().check()
