"""What a call of PyTorch gives, whatever the module does to its own memory; and values that PyTorch has none of."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

import rewriter
from rewriter.against import load
from rewriter.errors import MismatchError, UsageError
from tests.against.conftest import dynamo, exported
from tests.against.test_torch import By, run, unary, whole
from tests.texts import parse


class Kept(nn.Module):
    """Writes into a buffer, and returns it with a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4))

    def forward(self, x):
        self.cache.copy_(self.cache + x.sum(0))
        return self.cache, self.cache[:2]


SUMS = "y = ReduceSum<keepdims=0>(x, axis) z = Slice(y, start, end)"
CONSTANTS = "<int64[1] axis = {0}, int64[1] start = {0}, int64[1] end = {2}>"


@pytest.mark.parametrize(
    "net", [Kept, lambda: exported(Kept(), (torch.ones(3, 4),), {"x": {0: torch.export.Dim("n")}})]
)
def test_results_that_are_buffers(net):
    model = unary(SUMS, "(float[n, 4] x) => (float[4] y, float[2] z)", extra=CONSTANTS)
    oracle = net()
    assert whole(model, oracle)["samples"] == 4
    wrong = unary(SUMS + " q = Neg(z)", "(float[n, 4] x) => (float[4] y, float[2] q)", extra=CONSTANTS)
    with pytest.raises(MismatchError, match="output 'q' differs"):
        whole(wrong, oracle)
    if isinstance(oracle, Kept):
        assert torch.equal(oracle.cache, torch.zeros(4))


def test_inner_values_that_are_written_into_later():
    """The blame asks several times: neither the inputs nor what was seen may change in between."""

    class Writes(nn.Module):
        def __init__(self, shift: float) -> None:
            super().__init__()
            self.shift = shift
            self.register_buffer("cache", torch.zeros(4))

        def forward(self, x):
            self.cache.copy_(x.sum(0))
            h = self.cache * 2
            x.add_(1)
            return torch.sigmoid(h + self.shift) + x.mean(0)

    model = dynamo(Writes(0.0), (torch.randn(3, 4),))
    inputs = {model.graph.input[0].name: np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}
    net = Writes(0.5)
    from rewriter.against.factory import Eager
    from rewriter.against.oracle import Interface
    from rewriter.inputs.draw import Sample

    inner = Eager(net, "net", Interface.of(model)).inner(Sample(inputs, {}))
    names = [step.name for step in inner.steps]
    once, again = inner.values(names), inner.values(names)
    assert set(once) == set(again)
    assert all(np.array_equal(once[name], again[name]) for name in once)
    x = torch.from_numpy(next(iter(inputs.values())))
    multiplied = next(name for name in names if name.startswith("mul"))
    np.testing.assert_allclose(once[multiplied], (x.sum(0) * 2).numpy(), rtol=1e-6)


def test_nothing_is_printed_while_the_blame_is_sought(capfd):
    """torch.export shows the program that it cannot guard."""
    from tests.against import nets
    from tests.against.conftest import args, batch

    model = dynamo(nets.Net(), args(), batch())
    with pytest.raises(MismatchError):
        run(model, nets.rescaled)

    class Number(nn.Module):
        def forward(self, x):
            return float(x.sum())

    capfd.readouterr()
    with pytest.raises(MismatchError) as caught:
        run(unary("y = ReduceMax<keepdims=0>(x)", "(float[n, 4] x) => (float y)"), Number())
    assert "torch.export does not take the module" in caught.value.blame.detail
    told = capfd.readouterr()
    assert "forward" not in told.out + told.err


@pytest.mark.parametrize("kind", ["double", "float", "float16", "bfloat16"])
def test_a_number_has_the_declared_type(kind):
    """A float of Python is a double, and has no type of its own in a graph."""
    model = unary(
        "s = Cast<to=1>(x) y0 = ReduceMax<keepdims=0>(s) y = CastLike(y0, x)", f"({kind}[4] x) => ({kind} y)"
    )
    found = whole(model, By(lambda x: float(x.max())))
    assert found["samples"] == 2
    assert found["outputs"][0]["dtype"] == {"double": "float64", "float": "float32"}.get(kind, kind)


def test_a_double_is_not_rounded_on_its_way():
    model = unary("y = ReduceSum<keepdims=0>(x)", "(double[n, 4] x) => (double y)")
    assert whole(model, By(lambda x: float(x.sum())))["samples"] == 4
    with pytest.raises(MismatchError):  # within what a float32 would have been allowed
        whole(model, By(lambda x: float(x.sum()) + 1e-6))


def test_a_size_in_fewer_bits():
    model = unary("s = Shape<end=1>(x) t = Cast<to=6>(s) y = Squeeze(t)", "(float[n, 4] x) => (int32 y)")
    assert whole(model, By(lambda x: x.shape[0]))["samples"] == 4


@pytest.mark.parametrize(
    ("kind", "told"),
    [("string[n]", "strings"), ("seq(string[n])", "strings"), ("int4[n]", "int4")],
)
def test_what_pytorch_has_no_tensors_of_is_said_before_any_work(kind, told):
    model = parse(
        f'<ir_version: 10, opset_import: ["" : 21]> main ({kind} s, float[n] x) => (float[n] y) {{ y = Neg(x) }}'
    )
    program = exported(By(lambda s, x: -x), (torch.ones(2), torch.ones(2)))
    for oracle in (By(lambda s, x: -x), program):
        with pytest.raises(
            UsageError, match=rf"the input 's' holds {told}, of which PyTorch has no"
        ) as caught:
            load(oracle, model)
        assert "npz" in caught.value.remedy
    with pytest.raises(UsageError):
        run(model, By(lambda s, x: -x))


@pytest.mark.parametrize("role", ["inputs", "against"])
def test_bfloat16_is_not_read_as_float16(tmp_path, role):
    """numpy.savez keeps the bytes of either, and the name of neither's format but its own."""
    path = tmp_path / "io.npz"
    ones = np.ones(3, ml_dtypes.bfloat16)
    np.savez(path, x=ones, **({"y": ones} if role == "against" else {}))
    fitting = unary("y = Identity(x)", "(bfloat16[n] x) => (bfloat16[n] y)")
    assert rewriter.rewrite(fitting, simplify=False, strip_debug=True, **{role: path}).outcome == "verified"
    for kind in ("float16", "int16", "uint16"):
        other = unary("y = Identity(x)", f"({kind}[n] x) => ({kind}[n] y)")
        with pytest.raises(UsageError, match=rf"'x' is of a type that numpy saves without its name .*{kind}"):
            rewriter.rewrite(other, simplify=False, strip_debug=True, **{role: path})


@pytest.mark.parametrize("options", [{}, {"against": By(lambda x: -x)}, {"simplify": True}])
def test_a_comparison_that_raises_is_to_blame_itself(options):
    def broken(actual, expected):
        return actual[0].nonsense

    with pytest.raises(
        UsageError, match=r"the function that compares 'y' raises AttributeError: .*nonsense"
    ) as caught:
        rewriter.rewrite(
            unary("y = Neg(x)"), compare={"y": broken}, **{"simplify": False, "strip_debug": True, **options}
        )
    assert "simplif" not in str(caught.value)
