"""Passes of this kind are passes like any other: wherever a placeholder can stand, from a file, in several threads."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from torch.onnx import symbolic_helper

import rewriter
from rewriter.testing.check import Outcome, check
from rewriter.testing.variants import variants
from tests.interop import test_functions, test_surgeon, test_symbolic
from tests.interop.conftest import model_of, run

if TYPE_CHECKING:
    from pathlib import Path

    from rewriter import Placeholder


def _surgeon() -> Placeholder:
    return rewriter.from_surgeon(
        "mylib::square_plus_one",
        test_surgeon.square_plus_one,
        reference=lambda x: x * x + 1,
        cases=[rewriter.Case(rewriter.f32(2, 3))],
        dtypes=("float32",),
    )


def _symbolic_with_numbers(constants: Any) -> Placeholder:
    return rewriter.from_symbolic(
        "mylib::scaled",
        test_symbolic.scaled if constants == "value" else _annotated,
        reference=lambda x, beta=2.0: x * beta,
        cases=[rewriter.Case(rewriter.f32(2, 3), beta=1.5), rewriter.Case(rewriter.f32(2, 3), beta=3.0)],
        constants=constants,
    )


@symbolic_helper.parse_args("v", "f")
def _annotated(g: Any, x: Any, beta: float = 2.0) -> Any:
    import torch

    return g.op("Mul", x, g.op("Constant", value_t=torch.tensor(beta, dtype=x.type().dtype())))


@pytest.mark.parametrize(
    ("made", "until"),
    [
        (test_symbolic.SQUARE, 99),
        (_symbolic_with_numbers("value"), 99),
        (_symbolic_with_numbers("auto"), 99),
        (_surgeon(), 99),
        # Written at opset 13, and Mul has another form from 14 on.
        (test_functions.SWISH, 13),
    ],
    ids=["symbolic", "values", "parsed", "surgeon", "onnxscript"],
)
def test_every_place_dtype_and_opset(made: Placeholder, until: int) -> None:
    outcomes = [
        check(variant)
        for variant in variants(made)
        if 11 <= variant.opset <= until and made.decompositions[0].serves(variant.opset)
    ]
    assert outcomes.count(Outcome.AGREES) > len(outcomes) // 2
    assert len(outcomes) >= 8


PASS_FILE = """
import rewriter
from rewriter import Case, f32


def square(g, x):
    import torch

    two = g.op("Constant", value_t=torch.tensor(2.0))
    return g.op("Add", g.op("Pow", x, two), g.op("Constant", value_t=torch.tensor(1.0)))


square_plus_one = rewriter.from_symbolic(
    "mylib::square_plus_one", square, reference=lambda x: x * x + 1, cases=[Case(f32(2, 3))], dtypes=("float32",)
)
"""


def test_in_a_pass_file(tmp_path: Path) -> None:
    (tmp_path / "my_ops.py").write_text(PASS_FILE)
    model = model_of("mylib::square_plus_one", {"x": ("float32", ["n", 3])}, opset=13)
    onnx.save(model, tmp_path / "in.onnx")
    report = rewriter.rewrite(
        tmp_path / "in.onnx", tmp_path / "out.onnx", passes=[str(tmp_path / "my_ops.py")], strict=True
    )
    assert report.outcome == "verified"
    x = np.asarray([[1, 2, 3]], np.float32)
    np.testing.assert_array_equal(run(onnx.load(tmp_path / "out.onnx"), x=x)[0], [[2, 5, 10]])


def test_a_pass_file_names_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "my_ops.py").write_text(
        PASS_FILE.replace('g.op("Pow", x, two)', 'g.op("Squeeze", x, axes_i=[0])')
    )
    model = model_of("mylib::square_plus_one", {"x": ("float32", ["n", 3])}, opset=13)
    with pytest.raises(rewriter.errors.UnsupportedAtOpset) as caught:
        rewriter.rewrite(model, passes=[str(tmp_path / "my_ops.py")], derived=False)
    # The file begins with an empty line.
    assert caught.value.what == f"{tmp_path / 'my_ops.py'}:10: Squeeze has no attribute 'axes' at opset 13"


def test_declaring_a_pass_loads_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "my_ops.py").write_text(
        PASS_FILE
        + """
by_surgeon = rewriter.from_surgeon("mylib::other", square, reference=lambda x: x, cases=[Case(f32(2, 3))])
"""
    )
    program = (
        "import sys; from rewriter.placeholder import Selection; "
        f"s = Selection.load({str(tmp_path / 'my_ops.py')!r}); assert len(s.passes) == 2; "
        "print([m for m in ('torch', 'onnxruntime', 'onnxsim', 'onnxscript', 'onnx_graphsurgeon') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_several_threads_at_opsets_of_their_own() -> None:
    """Nothing of torch is patched or set meanwhile: each run sees its own opset."""

    def body(g: Any, x: Any) -> Any:
        return symbolic_helper._squeeze_helper(g, g.op("Relu", x), [0])

    made = rewriter.from_symbolic(
        "mylib::flat",
        body,
        reference=lambda x: x.relu().squeeze(0),
        cases=[rewriter.Case(rewriter.f32(1, 3))],
    )

    def form(opset: int) -> int:
        model = model_of("mylib::flat", {"x": ("float32", [1, 3])}, opset=opset)
        done = rewriter.rewrite(model, passes=[made], simplify=False, verify=False).model
        assert done is not None
        (squeeze,) = [node for node in done.graph.node if node.op_type == "Squeeze"]
        return len(squeeze.input)

    opsets = [11, 13, 12, 18] * 10
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(form, opsets)) == [1 if opset < 13 else 2 for opset in opsets]


def test_a_body_says_by_what_the_errors_of_kernels_are_multiplied():
    """Far below zero a Sigmoid has no correct digit: refused without terms."""
    import torch

    from rewriter.errors import MismatchError
    from tests.verify.conftest import FLOAT, model, node, prove

    def body(g, t, beta):
        return g.op("Mul", t, g.op("Sigmoid", g.op("Mul", t, beta)))

    def made(**rest: Any) -> Placeholder:
        return rewriter.from_symbolic(
            "mylib::gated",
            body,
            reference=lambda x, beta: x * torch.sigmoid(beta * x),
            cases=[rewriter.Case(rewriter.f32(2, 3), rewriter.f32())],
            **rest,
        )

    source = model(
        node("Sub", ["x", "far"], ["a"]),
        node("gated", ["a", "one"], ["y"], domain="mylib"),
        inputs={"x": (FLOAT, [64, 64])},
        outputs={"y": (FLOAT, None)},
        tensors={"far": np.float32(20), "one": np.float32(1)},
        domains=["mylib"],
    )
    with pytest.raises(MismatchError):
        prove(source, made())
    assert prove(source, made(terms=lambda values, beta: {"Sigmoid": values})).verdict == "verified"
