from __future__ import annotations

import pytest
from onnx import TensorProto

from rewriter.errors import UsageError
from rewriter.inputs.dims import ATTEMPTS, Sizes, evaluate
from rewriter.types import TensorType


def types(**shapes):
    return {name: TensorType(TensorProto.FLOAT, shape) for name, shape in shapes.items()}


def test_every_open_dim_gets_a_size_of_its_own_and_never_one():
    sizes = Sizes(types(x=("batch", 3, "height"), y=("batch", "width", None)))
    first, second = sizes.draw(0, 0), sizes.draw(1, 0)
    assert set(first) == {"batch", "height", "width", "y.2"}
    assert len(set(first.values())) == 4
    assert all(first[name] != second[name] for name in first)
    assert 1 not in {*first.values(), *second.values()}


def test_dims_of_one_name_agree_and_fixed_ones_stand():
    kinds = types(x=("batch", 3), y=(4, "batch"))
    sizes = Sizes(kinds)
    drawn = sizes.draw(0, 0)
    assert sizes.shape("x", kinds["x"], drawn) == (drawn["batch"], 3)
    assert sizes.shape("y", kinds["y"], drawn) == (4, drawn["batch"])


def test_sizes_asked_for_are_used_in_turn():
    sizes = Sizes(types(x=("batch", "length")), {"batch": (1, 3)})
    assert [sizes.draw(i, a)["batch"] for i in range(3) for a in (0, 5)] == [1, 1, 3, 3, 1, 1]


def test_a_dim_that_no_input_has_is_a_usage_error():
    with pytest.raises(UsageError, match=r"no input has a dim of that name.*batch"):
        Sizes(types(x=("batch",)), {"bathc": (1,)})


def test_a_negative_size_is_a_usage_error():
    with pytest.raises(UsageError):
        Sizes(types(x=("batch",)), {"batch": (-1,)})


def test_expressions_follow_from_their_names():
    kinds = types(past=("batch", "past_length"), mask=("batch", "past_length + 1"))
    sizes = Sizes(kinds)
    assert set(sizes.names) == {"batch", "past_length"}
    drawn = sizes.draw(0, 0)
    assert sizes.shape("mask", kinds["mask"], drawn) == (drawn["batch"], drawn["past_length"] + 1)


def test_a_name_may_look_like_an_expression():
    kinds = types(x=("batch-size", "seq/len"))
    sizes = Sizes(kinds, {"batch-size": (4,)})
    assert set(sizes.names) == {"batch-size", "seq/len"}
    assert sizes.shape("x", kinds["x"], sizes.draw(0, 0))[0] == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [("n", 3), ("2*n", 6), ("n//2 + m", 6), ("Max(n, m)", 5), ("n.0", None), ("k", None), ("a b", None)],
)
def test_expressions(text, value):
    assert evaluate(text, {"n": 3, "m": 5}) == value


@pytest.mark.parametrize("text", ["__import__('os').abort()", "n**n**n**n", "(" * 500, "n.__class__"])
def test_names_of_dims_are_data(text):
    assert evaluate(text, {"n": 9}) is None


def test_other_attempts_try_other_kinds_of_sizes():
    sizes = Sizes(types(x=("batch", 3, "height", "width")))
    tried = [sizes.draw(0, attempt) for attempt in range(ATTEMPTS)]
    assert any(d["height"] == d["width"] for d in tried)
    assert any(d["height"] % 32 == 0 and d["width"] % 32 == 0 for d in tried)
    assert tried[-1] == {"batch": 1, "height": 1, "width": 1}


def test_at_last_one_long_axis_among_short_ones_that_agree():
    """A model of speech: chunks of one size, and a state whose open dim is the batch, as no name says."""
    sizes = Sizes(types(input=(None, None), state=(2, None, 128)))
    tried = [sizes.draw(0, attempt) for attempt in range(ATTEMPTS, sizes.attempts)]
    for long in (256, 512, 576):
        assert {"input.0": 2, "input.1": long, "state.1": 2} in tried
        assert {"input.0": 1, "input.1": long, "state.1": 1} in tried
    assert {sizes.draw(1, ATTEMPTS)[name] for name in ("input.0", "state.1")} & {3}
    fixed = Sizes(types(input=(None, None)), {"input.1": (7,)})
    assert {fixed.draw(0, attempt)["input.1"] for attempt in range(fixed.attempts)} == {7}
    assert Sizes(types(x=(2, 3))).attempts == ATTEMPTS


def test_an_unknown_rank_has_no_shape():
    assert Sizes({}).shape("x", TensorType(1), {}) is None
