"""``--help`` and ``--list`` answer without the heavy libraries, and so does ``import rewriter``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import in_process

HEAVY = ("torch", "onnxruntime", "onnxsim", "onnxscript", "onnx_graphsurgeon")


@pytest.mark.parametrize("option", ["--help", "--list", "--version"])
def test_answers_with_the_heavy_libraries_blocked(option: str) -> None:
    done = in_process(option, blocked=HEAVY)
    assert done.code == 0, done.err
    assert done.err == ""
    assert done.out


@pytest.mark.parametrize("option", ["--help", "--list"])
def test_does_not_even_try_to_import_them(option: str) -> None:
    code = (
        "import sys; from rewriter.cli import run; run(sys.argv[1:]);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, option], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_help_imports_not_even_onnx() -> None:
    done = in_process("--help", blocked=(*HEAVY, "onnx", "numpy", "rich"))
    assert done.code == 0, done.err


def test_importing_the_package_imports_none_of_them() -> None:
    code = "import sys, rewriter; dir(rewriter); print([n for n in sys.modules if n.split('.')[0] in %r])"
    done = subprocess.run(
        [sys.executable, "-c", code % ((*HEAVY, "onnx", "numpy", "click"),)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_list_tells_name_meaning_matches_and_opsets() -> None:
    done = in_process("--list", blocked=HEAVY)
    for name in ("roll", "swish", "square_plus_one"):
        assert name in done.out
    assert "Circular shift" in done.out
    assert "aten::roll" in done.out
    assert "opset 11 and newer" in done.out
