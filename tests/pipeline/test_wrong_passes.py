"""A wrong decomposition is caught by the default run: exit 1, the node named, no output file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import rewriter
from rewriter.cli import run
from tests.cli.conftest import in_process
from tests.texts import write

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
main (DTYPE[N, 6] x) => (DTYPE[N, 6] y)
{ a = Relu (x)  y = com.example.Shift <by: int = 2> (a) }
"""

PASS = '''
import numpy as np
from rewriter import Builder, Case, Placeholder, Value, f32


class Shift(Placeholder):
    """A shift along dim 1, plus a third."""

    matches = ("Shift",)

    def reference(self, x, by=0):
        import torch

        return torch.roll(x, by, 1) + 1 / 3

    def decompose(self, g: Builder, x: Value, by: int = 0):
        tail, head = SLICES
        return RESULT

    def cases(self):
        yield Case(f32(2, 6), by=1)
'''

RIGHT = (
    "g.slice(x, starts=(6 - by,), ends=(6,), axes=(1,)), g.slice(x, starts=(0,), ends=(6 - by,), axes=(1,))"
)
WRONG_SIGN = "g.slice(x, starts=(by,), ends=(6,), axes=(1,)), g.slice(x, starts=(0,), ends=(by,), axes=(1,))"
SHIFTED = "g.concat((tail, head), axis=1)"

MEAN = f"g.reduce_mean({SHIFTED}, axes=(1,)) + 1 / 3"
#: The same, with a size that nobody can infer.
HIDDEN_MEAN = f'g.op("Compress", {SHIFTED}, g.const(np.array([True])), axis=1) + 1 / 3'
FLOAT32 = f'g.op("Add", {SHIFTED}, g.const(np.float32(1 / 3) * np.ones(1, np.float32)))'


def write_pass(path: Path, slices: str, result: str) -> Path:
    path.write_text(PASS.replace("SLICES", slices).replace("RESULT", result))
    return path


@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_the_right_one_passes(tmp_path: Path, dtype: str, capfd: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "m.onnx", MODEL.replace("DTYPE", dtype))
    code = run(
        [
            str(source),
            str(tmp_path / "out.onnx"),
            "--passes",
            str(write_pass(tmp_path / "p.py", RIGHT, f"{SHIFTED} + 1 / 3")),
        ]
    )
    assert code == 0, capfd.readouterr().err


@pytest.mark.parametrize(
    ("dtype", "slices", "result", "code"),
    [
        pytest.param("float", WRONG_SIGN, f"{SHIFTED} + 1 / 3", "mismatch", id="sign of the shift"),
        pytest.param("float", RIGHT, SHIFTED, "mismatch", id="a term forgotten"),
        pytest.param("float", RIGHT, f"{SHIFTED} / 0.0 * 0.0 + 1 / 3", "mismatch", id="NaN everywhere"),
        pytest.param("float", RIGHT, MEAN, "mismatch", id="a shape that broadcasts, known"),
        pytest.param("float", RIGHT, HIDDEN_MEAN, "mismatch", id="a shape that broadcasts, not known"),
        pytest.param("float16", RIGHT, FLOAT32, "pass-fault", id="float32 constant in a float16 graph"),
        pytest.param(
            "float16",
            RIGHT,
            f"g.cast({SHIFTED} + 1 / 3, 1)",
            "mismatch",
            id="float32 result in a float16 graph",
        ),
    ],
)
@pytest.mark.parametrize("simplify", [True, False])
def test_a_wrong_one_is_caught(
    tmp_path: Path, dtype: str, slices: str, result: str, code: str, simplify: bool
) -> None:
    source = write(tmp_path / "m.onnx", MODEL.replace("DTYPE", dtype))
    passes = write_pass(tmp_path / "p.py", slices, result)
    with pytest.raises(rewriter.RewriteError) as caught:
        rewriter.rewrite(source, tmp_path / "out.onnx", passes=str(passes), simplify=simplify)
    assert (caught.value.code, caught.value.exit_code) == (code, 1)
    assert "com.example::Shift 'y'" in str(caught.value)
    assert not (tmp_path / "out.onnx").exists()
    if code == "mismatch":  # how far the comparison got is told as well
        assert caught.value.report is not None
        proof = caught.value.report.to_dict()["verification"]
        assert proof["verdict"] == "failed"
        assert proof["regions"][0]["node"] == "y"


def test_without_torch_it_says_how_to_go_on(tmp_path: Path) -> None:
    source = write(
        tmp_path / "m.onnx", MODEL.replace("DTYPE", "float").replace("Shift <by: int = 2>", "Swish")
    )
    target = tmp_path / "out.onnx"
    done = in_process(source, target, blocked=("torch",))
    assert done.code == 1
    assert "PyTorch is not installed" in done.err
    assert "--no-verify" in done.err
    assert not target.exists()
    done = in_process(source, target, "--no-verify", blocked=("torch",))
    assert done.code == 0, done.err
    assert target.exists()
