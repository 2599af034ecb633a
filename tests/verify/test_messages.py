"""A difference is told in a few lines, each fact once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import helper, save_model

from rewriter.cli import run
from rewriter.errors import MismatchError, Where
from rewriter.verify.blame import DECOMPOSITION, EXPORT, Blame

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

FIGURES = "3 of 4 elements beyond tolerance: max|a-b| 2 (allowed: exact); at [0] 1, expected 3"
PLACE = Where(node="m", operator="Mul", source="net.py:3")

SHIFT = """
from rewriter import Builder, Case, Placeholder, Value, f32


class Shift(Placeholder):
    matches = ("Shift",)

    def reference(self, x):
        return x + 1

    def decompose(self, g: Builder, x: Value):
        return x + 2

    def cases(self):
        yield Case(f32(2))
"""


def test_the_place_stands_with_the_fault() -> None:
    blame = Blame(EXPORT, PLACE, "'m' 4 of 4 elements beyond tolerance: max|a-b| 9; 'x' before it agrees")
    error = MismatchError(
        "output 'y' differs",
        figures=FIGURES,
        sample="n=3",
        blame=blame,
        where=PLACE,
        remedy="export it again",
    )
    assert error.lines() == [
        "output 'y' differs (n=3)",
        FIGURES,
        "at fault: the export, first at Mul 'm' (net.py:3): 'm' 4 of 4 elements beyond tolerance; 'x' before it agrees",
        "export it again",
    ]
    # In one line, for a report, nothing is lost.
    assert error.what.startswith(f"output 'y' differs: {FIGURES} (n=3); the export, first at Mul 'm'")


def test_what_explains_itself_is_told_once() -> None:
    error = MismatchError("differs from PyTorch", figures=FIGURES, where=PLACE, remedy="correct it")
    error.blame = Blame(DECOMPOSITION, PLACE, error.what)
    assert error.lines() == ["Mul 'm' (net.py:3): differs from PyTorch", FIGURES, "correct it"]


def test_a_refusal_is_told_once() -> None:
    blame = Blame(EXPORT, PLACE, "onnxruntime refuses the inputs")
    error = MismatchError("the file refuses it", figures=blame.detail, blame=blame, where=PLACE)
    assert error.lines()[1:] == [
        "onnxruntime refuses the inputs",
        "at fault: the export, first at Mul 'm' (net.py:3)",
    ]
    assert error.what.count("refuses the inputs") == 1


def shifts(count: int, folder: Path) -> list[str]:
    """A model of ``count`` wrong replacements; the arguments of the command."""
    (folder / "shift.py").write_text(SHIFT)
    nodes = [
        helper.make_node("Shift", [f"v{n}"], [f"v{n + 1}"], name=f"n{n}", domain="com.example")
        for n in range(count)
    ]
    first, last = (helper.make_tensor_value_info(name, 1, [2]) for name in ("v0", f"v{count}"))
    graph = helper.make_graph(nodes, "g", [first], [last])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    save_model(helper.make_model(graph, opset_imports=imports, ir_version=8), folder / "m.onnx")
    return [str(folder / name) for name in ("m.onnx", "out.onnx")] + ["--passes", str(folder / "shift.py")]


def test_command_prints_each_on_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shifts(1, tmp_path)) == 1
    what, figures, remedy = capsys.readouterr().err.splitlines()
    assert what == "error: com.example::Shift 'n0': differs from PyTorch (sample 0)"
    assert figures.startswith("  'v1' 2 of 2 elements beyond tolerance: max|a-b| 1,")
    assert remedy.startswith("  correct the decomposition 'decompose' of pass 'shift'")


def test_thresholds_of_ones_own_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = shifts(1, tmp_path)
    assert run([*arguments, "--atol", "1.5"]) == 0
    assert "thresholds  atol 1.5, as asked" in capsys.readouterr().out.splitlines()
    assert run([*arguments, "--atol", "2", "--rtol", "1e-3"]) == 0
    assert "thresholds  atol 2, rtol 0.001, as asked" in capsys.readouterr().out.splitlines()


def test_further_ones_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shifts(2, tmp_path)) == 1
    assert "differs from PyTorch, as 1 more replaced operator does (sample 0)" in capsys.readouterr().err
    assert run(shifts(3, tmp_path)) == 1
    assert "differs from PyTorch, as 2 more replaced operators do (sample 0)" in capsys.readouterr().err
