"""What a default run draws: wrong passes of every kind are refused, and right ones of delicate kinds are not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from rewriter.decompose import decompose
from rewriter.errors import MismatchError
from rewriter.placeholder import Case, Selection, f32
from rewriter.placeholder.case import TensorSpec
from rewriter.storage import ModelFile
from rewriter.verify import VerifyOptions, verify
from tests.mutation.drawn import I32, I64, B, D, Entry, F, H, cast, red, size, softmax, where, x


def rng(seed=3):
    return np.random.default_rng(seed)


def run(entry):
    found = entry.placeholder()
    with ModelFile.from_proto(entry.model()) as file:
        done = decompose(file, Selection((found,), frozenset({"tried"})))
        return verify(file, file.model, file.model, done.regions, VerifyOptions(**entry.options))


def scalar(g, v, number):
    return g.const(number, v)


def last_argmax(g, v):
    n = size(g, v, -1)
    turned = g.op("Slice", v, g.ints([-1]), g.ints([-(2**31)]), g.ints([-1]), g.ints([-1]))
    return n - g.const(1) - g.op("ArgMax", turned, axis_i=-1, keepdims_i=0)


def away(g, v):
    return g.op("Sign", v) * g.op("Floor", g.op("Abs", v) + 0.5)


def to_square(g, v):
    h, w = size(g, v, 0), size(g, v, 1)
    more = g.op("Max", h - w, g.const(np.array([0])))
    zero = g.ints([0])
    return g.op("Pad", v, g.op("Concat", zero, zero, zero, more, axis_i=0))


def square_reference(v):
    n = max(v.shape)
    return functional.pad(v, (0, n - v.shape[1], 0, n - v.shape[0]))


def fixed_causal(g, q, k):
    """Keys are one more than queries, as they were in the example."""
    scores = g.op("MatMul", q, g.op("Transpose", k, perm_i=[1, 0]))
    rows = g.op("Range", g.const(0), g.op("Squeeze", size(g, scores, 0)), g.const(1))
    columns = g.op("Range", g.const(0), g.op("Squeeze", size(g, scores, 1)), g.const(1))
    seen = g.op(
        "LessOrEqual",
        g.op("Unsqueeze", columns, g.ints([0])),
        g.op("Unsqueeze", rows, g.ints([1])) + g.const(1),
    )
    return where(g, seen, scores, scalar(g, q, -1e4))


def causal_reference(q, k):
    scores = q @ k.T
    seen = torch.ones(scores.shape, dtype=torch.bool).tril(k.shape[0] - q.shape[0])
    return scores.masked_fill(~seen, -1e4)


def blocks(g, v):
    whole = g.op(
        "Reshape",
        g.op("Slice", v, g.ints([0]), (size(g, v, 0) / g.const(8)) * g.const(8), g.ints([0])),
        g.ints([-1]),
    )
    rest = g.op("Slice", v, (size(g, v, 0) / g.const(8)) * g.const(8), g.ints([2**31]), g.ints([0]))
    return g.op("Concat", whole, rest * 0.0 if False else rest, axis_i=0)


def table(g, v, length):
    """A table of positions that ends at ``length``."""
    positions = g.const(np.arange(length, dtype=np.float32))
    n = size(g, v, -1)
    taken = g.op("Slice", positions, g.ints([0]), n, g.ints([0]))
    padded = g.op("Pad", taken, g.op("Concat", g.ints([0]), n - size(g, taken, 0), axis_i=0))
    return v + padded


def positions(v):
    return v + torch.arange(v.shape[-1], dtype=v.dtype)


def lse(v):
    return torch.logsumexp(v, -1)


def lse_wrong(g, v):
    m = red(g, "Max", v, -1)
    return g.op("Log", red(g, "Sum", g.op("Exp", v - m), -1, 0)) + g.op("Squeeze", m, g.ints([-1]))


def pair(kind, *shape):
    return x(kind, *shape) * 2


STD_EPS = 1e-6
W1 = np.ones(4, np.float32)

WRONG = [
    # Size 1.
    Entry(
        "squeeze all",
        "size 1",
        lambda v: v.sum(1, keepdim=True).squeeze(1),
        lambda g, v: g.op("Squeeze", red(g, "Sum", v, 1)),
        x(F, "n", "c", "w"),
    ),
    Entry(
        "std of one",
        "size 1",
        lambda v: v.std(-1),
        lambda g, v: g.op(
            "Sqrt",
            red(g, "Sum", (v - red(g, "Mean", v, -1)) * (v - red(g, "Mean", v, -1)), -1, 0)
            / g.op("Max", cast(g, size(g, v, -1), F) - 1.0, scalar(g, v, 1.0)),
        ),
        x(F, "n", "c"),
    ),
    Entry(
        "batch squeezed",
        "size 1",
        lambda v: v[:, 0],
        lambda g, v: g.op("Squeeze", g.op("Slice", v, g.ints([0]), g.ints([1]), g.ints([1]))),
        x(F, "n", 3),
    ),
    # One order of sizes.
    Entry("causal", "one order", causal_reference, fixed_causal, ((F, ("q", 4)), (F, ("k", 4)))),
    Entry("square", "one order", square_reference, to_square, x(F, "h", "w")),
    Entry(
        "wide",
        "one order",
        lambda v: v[: min(v.shape), : min(v.shape)],
        lambda g, v: g.op("Slice", v, g.ints([0]), size(g, v, 0), g.ints([1])),
        x(F, "h", "w"),
    ),
    # Sizes that divide.
    Entry(
        "roll by a multiple",
        "divides",
        lambda v: torch.roll(v, 210, 0),
        lambda g, v: g.op("Identity", v),
        x(F, "n"),
    ),
    Entry(
        "blocks of 2",
        "divides",
        lambda v: v[: v.shape[0] // 2],
        lambda g, v: g.op("Slice", v, g.ints([0]), (size(g, v, 0) + g.const(1)) / g.const(2), g.ints([0])),
        x(F, "n"),
    ),
    Entry(
        "repeats",
        "divides",
        lambda v: v.repeat(3)[: 2 * v.shape[0]],
        lambda g, v: g.op(
            "Slice",
            g.op("Tile", v, g.ints([3])),
            g.ints([0]),
            g.op("Min", size(g, v, 0) * g.const(2), g.const(np.array([10]))),
            g.ints([0]),
        ),
        x(F, "n"),
    ),
    # Larger sizes.
    Entry("table of 12", "larger sizes", positions, lambda g, v: table(g, v, 12), x(F, "n", "c")),
    Entry("table of 30", "larger sizes", positions, lambda g, v: table(g, v, 30), x(F, "n", "c")),
    Entry(
        "first 16",
        "larger sizes",
        lambda v: v.cumsum(0),
        lambda g, v: (
            g.op("CumSum", g.op("Slice", v, g.ints([0]), g.ints([2**31]), g.ints([0])), g.const(0)) * 1.0
            if False
            else where(
                g,
                g.op("Less", g.op("CumSum", v * 0.0 + 1.0, g.const(0)), scalar(g, v, 16.5)),
                g.op("CumSum", v, g.const(0)),
                v * 0.0,
            )
        ),
        x(F, "n", 2),
        finite=True,
    ),
    # Integers.
    Entry(
        "floor division",
        "integers",
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda g, a, b: g.op("Div", a, b),
        ((I64, (6, 5)), (I64, (6, 5))),
    ),
    Entry(
        "remainder",
        "integers",
        lambda a: torch.remainder(a, 7),
        lambda g, a: g.op("Mod", a, scalar(g, a, 7), fmod_i=1),
        x(I64, "n", 4),
    ),
    Entry(
        "through float32",
        "integers",
        lambda a: a + 1,
        lambda g, a: cast(g, cast(g, a, F) + 1.0, I64),
        x(I64, 3, 4),
    ),
    Entry(
        "int32 sum",
        "integers",
        lambda a: a.sum(-1),
        lambda g, a: cast(g, red(g, "Sum", a, -1, 0), I64),
        x(I32, 3, 4),
    ),
    Entry(
        "true division",
        "integers",
        lambda a: torch.div(a, 2, rounding_mode="trunc"),
        lambda g, a: cast(g, g.op("Floor", cast(g, a, F) / 2.0), I64),
        x(I64, 3, 4),
    ),
    # NaN and infinities.
    Entry(
        "maximum",
        "NaN",
        lambda a, b: torch.maximum(a, b),
        lambda g, a, b: where(g, g.op("Greater", a, b), a, b),
        pair(F, 3, 4),
    ),
    Entry("logsumexp", "NaN", lse, lse_wrong, x(F, "n", "c")),
    Entry(
        "masked by a product",
        "NaN",
        lambda v: v.clamp(-1, 1) * 0 + torch.where(v.isinf(), torch.zeros_like(v), v),
        lambda g, v: v * cast(g, g.op("Not", g.op("IsInf", v)), F),
        x(F, 3, 4),
    ),
    Entry(
        "relu",
        "NaN",
        lambda v: torch.relu(v),
        lambda g, v: where(g, g.op("Greater", v, scalar(g, v, 0.0)), v, scalar(g, v, 0.0)),
        x(F, "n", 4),
    ),
    # Whole rows.
    Entry(
        "normalise",
        "rows",
        lambda v: functional.normalize(v, dim=-1),
        lambda g, v: v / g.op("Sqrt", red(g, "Sum", v * v, -1)),
        x(F, "n", 4),
    ),
    Entry(
        "masked softmax",
        "rows",
        lambda v, m: torch.nan_to_num(v.masked_fill(~m, -torch.inf).softmax(-1)),
        lambda g, v, m: softmax(g, where(g, m, v, scalar(g, v, -1e9))),
        ((F, ("n", 5)), (B, ("n", 5))),
    ),
    Entry(
        "weighted mean",
        "rows",
        lambda v, m: (v * m).sum(-1) / m.sum(-1).clamp(min=1),
        lambda g, v, m: red(g, "Sum", v * cast(g, m, F), -1, 0) / red(g, "Sum", cast(g, m, F), -1, 0),
        ((F, ("n", 9)), (B, ("n", 9))),
    ),
    # Ties and halves.
    Entry("last of the maxima", "ties", lambda v: v.argmax(-1), last_argmax, x(F, "n", 6)),
    Entry("away from zero", "halves", torch.round, away, x(F, 4, 4)),
    Entry(
        "threshold",
        "ties",
        lambda v: (v > 0.3).float(),
        lambda g, v: cast(g, g.op("GreaterOrEqual", v, scalar(g, v, 0.3)), F),
        x(F, 4, 4),
    ),
    Entry(
        "half open",
        "ties",
        lambda v: torch.where(v >= 1.7, v, torch.zeros_like(v)),
        lambda g, v: where(g, g.op("Greater", v, scalar(g, v, 1.7)), v, scalar(g, v, 0.0)),
        x(F, "n", 5),
    ),
    # The second input.
    Entry(
        "exp of the second",
        "second input",
        lambda a, b: a - functional.softplus(b),
        lambda g, a, b: a - g.op("Log", g.op("Exp", b) + 1.0),
        pair(F, 3, 4),
    ),
    Entry(
        "division by zero",
        "second input",
        lambda a, b: torch.where(b == 0, torch.zeros_like(a), a / b),
        lambda g, a, b: a / b,
        pair(F, 3, 4),
    ),
    Entry(
        "logaddexp",
        "second input",
        torch.logaddexp,
        lambda g, a, b: a + g.op("Log", g.op("Exp", b - a) + 1.0),
        pair(F, "n", 4),
    ),
    Entry(
        "equal inputs",
        "second input",
        lambda a, b: torch.where(a == b, a, (a - b) / (a - b).abs()),
        lambda g, a, b: g.op("Sign", a - b),
        pair(F, 3, 4),
    ),
    # Uniform weights.
    Entry(
        "mean",
        "uniform weights",
        lambda v, w: (v * w).sum(-1) / w.sum(),
        lambda g, v, w: red(g, "Mean", v, -1, 0),
        x(F, "n", 4),
        constants=(W1,),
    ),
    Entry(
        "no bias",
        "uniform weights",
        lambda v, b: v + b,
        lambda g, v, b: g.op("Identity", v),
        x(F, "n", 4),
        constants=(W1 * 0,),
    ),
    Entry(
        "one scale",
        "uniform weights",
        lambda v, w: v * w,
        lambda g, v, w: v * g.op("Slice", w, g.ints([0]), g.ints([1]), g.ints([0])),
        x(F, "n", 4),
        constants=(W1 * 0.5,),
    ),
    # float16.
    Entry(
        "norm",
        "float16",
        lambda v: v.float().norm(dim=-1).half(),
        lambda g, v: g.op("Sqrt", red(g, "Sum", v * v, -1, 0)),
        x(H, 3, 8),
    ),
    Entry(
        "rms",
        "float16",
        lambda v: (v.float() / (v.float().square().mean(-1, keepdim=True) + 1e-6).sqrt()).half(),
        lambda g, v: v / g.op("Sqrt", red(g, "Mean", v * v, -1) + 1e-6),
        x(H, "n", 8),
    ),
    Entry(
        "variance",
        "float16",
        lambda v: v.float().var(-1, unbiased=False).half(),
        lambda g, v: red(g, "Mean", v * v, -1, 0) - red(g, "Mean", v, -1, 0) * red(g, "Mean", v, -1, 0),
        x(H, 3, 8),
    ),
    # Scales.
    Entry(
        "beyond 30",
        "scales",
        torch.tanh,
        lambda g, v: where(
            g, g.op("Greater", g.op("Abs", v), scalar(g, v, 50.0)), scalar(g, v, 0.0), g.op("Tanh", v)
        ),
        x(F, "n", 4),
    ),
    Entry(
        "softplus", "scales", functional.softplus, lambda g, v: g.op("Log", g.op("Exp", v) + 1.0), x(F, 3, 4)
    ),
    Entry(
        "epsilon",
        "scales",
        lambda v: v / (v.abs().sum(-1, keepdim=True) + 1e-6),
        lambda g, v: v / red(g, "Sum", g.op("Abs", v), -1),
        x(F, "n", 4),
    ),
]


@pytest.mark.parametrize("entry", WRONG, ids=str)
def test_a_wrong_pass_is_refused(entry: Entry) -> None:
    with pytest.raises(MismatchError):
        run(entry)


def _sorted(generator, shape):
    return np.sort(generator.standard_normal(shape), -1)


def _one_hot(generator, shape):
    return np.eye(shape[-1])[generator.integers(0, shape[-1], shape[:-1])]


def _probabilities(generator, shape):
    made = generator.random(shape) + 0.01
    return made / made.sum(-1, keepdims=True)


def _positive(generator, shape):
    return generator.random(shape) + 0.1


def _distinct(generator, shape):
    return generator.permutation(int(np.prod(shape))).reshape(shape)


def drawn_case(draw, *shape):
    return (Case(f32(*shape, draw=draw)),)


def erf_gelu(g, v):
    return v * 0.5 * (g.op("Erf", v / 1.4142135623730951) + 1.0)


def safe_lse(g, v):
    m = red(g, "Max", v, -1)
    m = where(g, g.op("IsInf", m), scalar(g, v, 0.0), m)
    return g.op("Squeeze", g.op("Log", red(g, "Sum", g.op("Exp", v - m), -1)) + m, g.ints([-1]))


def floor_div(g, a, b):
    q = g.op("Div", a, b)
    r = a - q * b
    off = g.op(
        "And",
        g.op("Not", g.op("Equal", r, scalar(g, a, 0))),
        g.op("Less", r * g.op("Sign", b), scalar(g, a, 0)),
    )
    return q - cast(g, off, I64)


def atan2(g, b, a):
    at = g.op("Atan", b / a)
    pi = scalar(g, a, float(np.float32(np.pi)))
    return where(
        g,
        g.op("Less", a, scalar(g, a, 0.0)),
        where(g, g.op("Less", b, scalar(g, a, 0.0)), at - pi, at + pi),
        at,
    )


def entry(name, reference, decompose, inputs, **more):
    return Entry(name, "right", reference, decompose, inputs, **more)


RIGHT = [
    entry("softmax", lambda v: v.softmax(-1), lambda g, v: g.op("Softmax", v, axis_i=-1), x(F, "n", "c")),
    entry("softmax in parts", lambda v: v.softmax(-1), softmax, x(F, "n", "c"), finite=True),
    entry(
        "masked softmax",
        lambda v, m: v.masked_fill(~m, -1e9).softmax(-1),
        lambda g, v, m: softmax(g, where(g, m, v, scalar(g, v, -1e9))),
        ((F, ("n", 5)), (B, ("n", 5))),
        finite=True,
    ),
    entry(
        "log softmax",
        lambda v: v.log_softmax(-1),
        lambda g, v: g.op("LogSoftmax", v, axis_i=-1),
        x(F, "n", "c"),
    ),
    entry("logsumexp", lse, safe_lse, x(F, "n", "c"), finite=True),
    entry(
        "logsumexp by its operator",
        lse,
        lambda g, v: red(g, "LogSumExp", v, -1, 0),
        x(F, "n", "c"),
        finite=True,
    ),
    entry(
        "sort",
        lambda v: v.sort(-1).values,
        lambda g, v: g.op("TopK", v, size(g, v, -1), largest_i=0, outputs=2)[0],
        x(F, 3, 40),
        finite=True,
    ),
    entry(
        "argsort of distinct",
        lambda v: v.argsort(-1),
        lambda g, v: g.op("TopK", v, size(g, v, -1), largest_i=0, outputs=2)[1],
        x(F, 200),
        cases=drawn_case(_distinct, 200),
    ),
    entry(
        "argsort",
        lambda v: v.argsort(-1),
        lambda g, v: g.op("TopK", v, size(g, v, -1), largest_i=0, outputs=2)[1],
        x(F, 200),
        finite=True,
    ),
    entry(
        "topk",
        lambda v: v.topk(3, -1).indices,
        lambda g, v: g.op("TopK", v, g.ints([3]), outputs=2)[1],
        x(F, 60),
        finite=True,
    ),
    entry(
        "argmax",
        lambda v: v.argmax(-1),
        lambda g, v: g.op("ArgMax", v, axis_i=-1, keepdims_i=0),
        x(F, "n", "c"),
        finite=True,
    ),
    entry(
        "layer norm",
        lambda v: functional.layer_norm(v, v.shape[-1:]),
        lambda g, v: (
            (v - red(g, "Mean", v, -1))
            / g.op(
                "Sqrt", red(g, "Mean", (v - red(g, "Mean", v, -1)) * (v - red(g, "Mean", v, -1)), -1) + 1e-5
            )
        ),
        x(F, "n", 8),
        finite=True,
    ),
    entry(
        "normalise",
        lambda v: functional.normalize(v, dim=-1),
        lambda g, v: v / g.op("Max", red(g, "L2", v, -1), scalar(g, v, 1e-12)),
        x(F, "n", 6),
        finite=True,
    ),
    entry(
        "rms norm",
        lambda v: v / (v.square().mean(-1, keepdim=True) + 1e-6).sqrt(),
        lambda g, v: v / g.op("Sqrt", red(g, "Mean", v * v, -1) + 1e-6),
        x(F, "n", 6),
        finite=True,
    ),
    entry(
        "floor division",
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        floor_div,
        ((I64, (6, 5)), (I64, (6, 5))),
    ),
    entry(
        "remainder",
        lambda a: torch.remainder(a, 7),
        lambda g, a: g.op("Mod", a, scalar(g, a, 7)),
        x(I64, "n", 4),
    ),
    entry(
        "int32 product", lambda a: a * 3 - 1, lambda g, a: a * scalar(g, a, 3) - scalar(g, a, 1), x(I32, 3, 4)
    ),
    entry("to int64", lambda a: a.long() * 2, lambda g, a: cast(g, a, I64) * g.const(2), x(I32, 3, 4)),
    entry("float to integer", lambda v: v.long(), lambda g, v: cast(g, v, I64), x(F, 3, 4), finite=True),
    entry(
        "cumsum",
        lambda v: v.cumsum(-1),
        lambda g, v: g.op("CumSum", v, g.const(-1)),
        x(F, "n", "c"),
        finite=True,
    ),
    entry(
        "one hot",
        lambda a: functional.one_hot(a, 8),
        lambda g, a: g.op("OneHot", a, g.const(8), g.const(np.array([0, 1]))),
        x(I64, "n"),
    ),
    entry(
        "quantise",
        lambda v: torch.clamp(torch.round(v / 0.1), -128, 127),
        lambda g, v: g.op("Clip", g.op("Round", v / 0.1), scalar(g, v, -128.0), scalar(g, v, 127.0)),
        x(F, 4, 8),
        finite=True,
    ),
    entry(
        "quantise by the inverse",
        lambda v: torch.clamp(torch.round(v / 0.0173), -128, 127),
        lambda g, v: g.op("Clip", g.op("Round", v * (1 / 0.0173)), scalar(g, v, -128.0), scalar(g, v, 127.0)),
        x(F, 4, 8),
        finite=True,
    ),
    entry("division", lambda a, b: a / b, lambda g, a, b: a / b, pair(F, "n", 4)),
    entry(
        "power",
        lambda v: v.abs() ** 1.7,
        lambda g, v: g.op("Pow", g.op("Abs", v), scalar(g, v, 1.7)),
        x(F, "n", 4),
    ),
    entry(
        "reciprocal root", lambda v: v.rsqrt(), lambda g, v: g.op("Reciprocal", g.op("Sqrt", v)), x(F, 3, 4)
    ),
    entry(
        "atan2 of positive",
        torch.atan2,
        atan2,
        pair(F, 3, 4),
        cases=(Case(f32(3, 4, draw=_positive), f32(3, 4, draw=_positive)),),
    ),
    entry("sine", torch.sin, lambda g, v: g.op("Sin", v), x(F, "n", 4)),
    entry(
        "cosine of frequencies",
        lambda v: torch.cos(v * 100.0),
        lambda g, v: g.op("Cos", v * 100.0),
        x(F, "n", 4),
    ),
    entry("gelu", functional.gelu, erf_gelu, x(F, "n", 4), finite=True),
    entry("silu", functional.silu, lambda g, v: v * g.op("Sigmoid", v), x(F, "n", 4), finite=True),
    entry(
        "softplus",
        functional.softplus,
        lambda g, v: (
            g.op("Max", v, scalar(g, v, 0.0)) + g.op("Log", g.op("Exp", g.op("Neg", g.op("Abs", v))) + 1.0)
        ),
        x(F, "n", 4),
        finite=True,
    ),
    entry(
        "float16 norm",
        lambda v: v.float().norm(dim=-1).half(),
        lambda g, v: cast(g, g.op("Sqrt", red(g, "Sum", cast(g, v, F) * cast(g, v, F), -1, 0)), H),
        x(H, 3, 8),
        finite=True,
    ),
    entry(
        "float16 softmax",
        lambda v: v.softmax(-1),
        lambda g, v: g.op("Softmax", v, axis_i=-1),
        x(H, 3, 8),
        finite=True,
    ),
    entry("float16 silu", functional.silu, lambda g, v: v * g.op("Sigmoid", v), x(H, 3, 8), finite=True),
    entry(
        "float16 mean", lambda v: v.mean(-1), lambda g, v: red(g, "Mean", v, -1, 0), x(H, 3, 8), finite=True
    ),
    entry(
        "float16 elu",
        functional.elu,
        lambda g, v: where(g, g.op("Less", v, scalar(g, v, 0.0)), g.op("Exp", v) - 1.0, v),
        x(H, 3, 8),
        finite=True,
    ),
    entry("float64 erf", torch.square, lambda g, v: v * v, x(D, 3, 4)),
    # Cases that draw what means something.
    entry(
        "search in sorted",
        lambda v: torch.searchsorted(v, torch.tensor([0.0]))[0],
        lambda g, v: red(g, "Sum", cast(g, g.op("Less", v, scalar(g, v, 0.0)), I64), 0, 0),
        x(F, "n"),
        cases=drawn_case(_sorted, 9),
    ),
    entry(
        "median of sorted",
        lambda v: v.sort().values[v.shape[0] // 2],
        lambda g, v: g.op("Gather", v, g.op("Squeeze", size(g, v, 0)) / g.const(2)),
        x(F, "n"),
        cases=drawn_case(_sorted, 9),
    ),
    entry(
        "class of one hot",
        lambda v: v.argmax(-1),
        lambda g, v: cast(
            g, g.op("ReduceSum", v * g.const(np.arange(5, dtype=np.float32)), g.ints([-1]), keepdims_i=0), I64
        ),
        x(F, "n", 5),
        cases=drawn_case(_one_hot, 4, 5),
    ),
    entry(
        "entropy",
        lambda v: torch.special.entr(v).sum(-1),
        lambda g, v: g.op("Neg", red(g, "Sum", v * g.op("Log", v), -1, 0)),
        x(F, "n", 5),
        cases=drawn_case(_probabilities, 4, 5),
    ),
    entry(
        "root of positive",
        lambda v: v.abs().sqrt(),
        lambda g, v: g.op("Sqrt", v),
        x(F, "n", 5),
        cases=drawn_case(_positive, 4, 5),
    ),
    entry(
        "small counts",
        lambda a: a % 8,
        lambda g, a: g.op("Identity", a),
        x(I64, "n"),
        cases=(
            Case(TensorSpec((4,), "int64", draw=lambda generator, shape: generator.integers(0, 8, shape))),
        ),
    ),
    entry(
        "within a range",
        lambda v: v.abs(),
        lambda g, v: g.op("Identity", v),
        x(F, "n", 4),
        options={"input_ranges": {"in0": (0.0, 1.0)}},
    ),
    entry(
        "at a size",
        lambda v: v[:3],
        lambda g, v: g.op("Identity", v),
        x(F, "n"),
        options={"dims": {"n": (2, 3)}},
    ),
]


@pytest.mark.parametrize("entry", RIGHT, ids=str)
def test_a_right_pass_is_not(entry: Entry) -> None:
    assert run(entry).verdict == "verified"
