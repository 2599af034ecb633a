"""Which of the graph's inputs goes to which parameter of ``forward``, whatever the user called them."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from rewriter.against.binding import bindings
from rewriter.errors import MismatchError, UsageError
from tests.against.conftest import dynamo
from tests.against.test_torch import By, run, unary, whole


def two(a, b, body="y = Sub({0}, {1})"):
    """Subtracts its second input."""
    return unary(body.format(a, b), f"(float[n] {a}, float[n] {b}) => (float[n] y)")


def first(function, *inputs):
    """The arguments of the likeliest binding, by the names of the graph's inputs."""
    args, kwargs = bindings(inspect.signature(function), inputs)[0].fill({name: name for name in inputs})
    return [*args, *([kwargs] if kwargs else [])]


@pytest.mark.parametrize("name", ["x_in", "x_orig", "x", "other", "x_0", "x_1"])
@pytest.mark.parametrize("function", [lambda x: -x, lambda x: x.neg(), lambda x: torch.roll(-x, 0)])
def test_a_tensor_that_is_called_like_a_part(name, function):
    assert (
        whole(unary(f"y = Neg({name})", f"(float[n] {name}) => (float[n] y)"), By(function))["samples"] == 4
    )


def test_a_tuple_times_two_is_no_tensor_either():
    """A tuple is repeated, where a tensor is multiplied: the number of results tells."""
    model = unary("y = Add(x_0, x_0)", "(float[n] x_0) => (float[n] y)")
    assert whole(model, By(lambda x: x * 2))["samples"] == 4


def test_input_ids_and_an_input():
    model = unary("y = Add(input_ids, input_ids)", "(int64[n] input_ids) => (int64[n] y)")
    assert whole(model, By(lambda input: input + input))["samples"] == 4  # noqa: A006
    assert whole(model, By(lambda input=None, ids=None: input + input))["samples"] == 4  # noqa: A006


def test_beginnings_of_names_come_before_order():
    model = unary("y = Sub(a_in, b_in)", "(float[n] b_in, float[n] a_in) => (float[n] y)")
    assert whole(model, By(lambda a, b: a - b))["samples"] == 4
    assert whole(two("x_in", "x_orig"), By(lambda x, y: x - y))["samples"] == 4
    with pytest.raises(MismatchError) as caught:
        whole(two("x_in", "x_orig"), By(lambda x, y: y - x))
    assert "taken in order: forward(x, y) got x_in, x_orig" in caught.value.blame.detail


def test_parts_of_a_dict_a_list_and_of_one_element():
    class Parts(nn.Module):
        def forward(self, options, features, scale=None):
            return options["b"] - options["a"] * features[0] + features[-1]

    values = {"b": torch.randn(3), "a": torch.randn(3)}, [torch.randn(3), torch.randn(3)]
    assert whole(dynamo(Parts(), values), Parts())["samples"] == 2
    values = {"b": torch.randn(3), "a": torch.randn(3)}, (torch.randn(3),)
    assert whole(dynamo(Parts(), values), Parts())["samples"] == 2


def test_a_dict_of_one_beside_a_tensor():
    class One(nn.Module):
        def forward(self, options, x):
            return x - options["bias"]

    assert whole(dynamo(One(), ({"bias": torch.randn(3)}, torch.randn(3))), One())["samples"] == 2


def test_names_that_fit_nothing_go_to_keywords():
    assert whole(two("a", "b"), By(lambda **values: values["a"] - values["b"]))["samples"] == 4
    assert whole(two("x", "mask"), By(lambda x, **more: x - more["mask"]))["samples"] == 4
    swapped = unary("y = Sub(a, b)", "(float[n] b, float[n] a) => (float[n] y)")
    assert whole(swapped, By(lambda **values: values["a"] - values["b"]))["samples"] == 4
    assert first(lambda x, **more: 0, "x_0", "x_1", "scale") == [{"x": ("x_0", "x_1"), "scale": "scale"}]


def test_a_wrapper_of_any_arguments():
    class Inner(nn.Module):
        def forward(self, p, q):
            return p - q

    inner = Inner()
    wrapped = By(lambda *args, **kwargs: inner(*args, **kwargs))
    assert whole(two("p", "q"), wrapped)["samples"] == 4
    assert whole(two("a", "b"), wrapped)["samples"] == 4  # the names are not those of forward: in order
    assert whole(two("a", "b"), By(lambda *values: values[0] - values[1]))["samples"] == 4


def test_what_the_module_says_is_told_where_nothing_works():
    def refuses(x):
        raise TypeError("never")

    from rewriter.errors import CannotVerifyError

    model = unary("y = Neg(x_0)", "(float[n] x_0) => (float[n] y)")
    with pytest.raises(CannotVerifyError, match="TypeError: never"):
        run(model, By(refuses))
    with pytest.raises(UsageError, match="does not take the graph's inputs 'x_0'"):
        run(model, By(lambda p, q: p))
