"""Folding and fusing never make the file larger: what would grow is left as it was, and the rest is simplified."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simplify.conftest import assert_deliverable, assert_same, draw, model_of, run_stage, with_weights

BLOWUPS = {
    "ConstantOfShape": "c = ConstantOfShape<value = float[1] {1.5}>(shape)  y = Add(i, c)",
    "Expand": "c = Expand(one, shape)  y = Add(i, c)",
    "Tile": "r = Reshape(one, ones)  c = Tile(r, shape)  y = Add(i, c)",
    "Range": "r = Range(zero, end, step)  f = Cast<to = 1>(r)  s = Reshape(f, shape)  y = Add(i, s)",
    "broadcast": "r = Add(column, row)  y = Add(i, r)",
    "small pieces": "r = Add(shortcolumn, shortrow)  s = Concat<axis = 0>(r, r, r, r, r, r)  y = Add(i, s)",
}


@pytest.mark.parametrize("case", BLOWUPS)
def test_constants_are_not_blown_up(case: str) -> None:
    model = model_of(
        """g (float[A, B] x) => (float[C, D] y)
        <int64[2] shape = {48, 32}, float one = {1.25}, int64[2] ones = {1, 1}, int64 zero = {0},
         int64 end = {1536}, int64 step = {1}> { k = Shape(shape) i = Identity(x) """
        + BLOWUPS[case]
        + " }"
    )
    with_weights(model, column=draw(48, 1), row=draw(1, 32), shortcolumn=draw(8, 1), shortrow=draw(1, 32))
    stage = run_stage(model)
    assert stage.result.accepted, stage.result.reason
    assert_deliverable(stage)
    assert "Identity" not in stage.types()
    assert_same(stage, {"x": draw(48, 32)})


def test_a_tied_weight_is_not_duplicated() -> None:
    model = model_of(
        """g (int64[N] ids, float[N, 16] x) => (float[N, 12] logits, float[N, 16] e) {
          e = Gather(table, ids)  t = Transpose<perm = [1, 0]>(table)  i = Identity(x)  logits = MatMul(i, t)
        }"""
    )
    stage = run_stage(with_weights(model, table=draw(12, 16)))
    assert stage.result.accepted
    assert_deliverable(stage)
    assert len(stage.after.graph.initializer) == 1
    assert_same(stage, {"ids": np.array([0, 11, 5]), "x": draw(3, 16)}, rtol=1e-5, atol=1e-6)


def test_a_dynamic_linear_layer_does_not_grow() -> None:
    model = model_of(
        """g (float[B, S, 8] x) => (float[B, S, 4] y) {
          i = Identity(x)  a = MatMul(i, w)  b = Add(a, bias)  c = Relu(b)  y = Identity(c)
        }"""
    )
    stage = run_stage(with_weights(model, w=draw(8, 4), bias=draw(4)))
    assert stage.result.accepted
    assert stage.types() == ["MatMul", "Add", "Relu"]
    assert_same(stage, {"x": draw(2, 3, 8)}, {"x": draw(1, 0, 8)}, rtol=1e-5, atol=1e-6)
