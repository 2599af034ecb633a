"""What is said of an operator that no pass takes works when it is done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import rewriter
from tests.texts import ROLL, UNKNOWN, parse, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome

    Rewrite = Callable[..., Outcome]

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.example" : 1, "x.y" : 1]>\n'
QUICK = ("--no-simplify", "--no-verify")

OWN = """
from rewriter import Builder, Case, Placeholder, Value, f32

class Own(Placeholder):
    '''Twice ``x``.'''

    matches = ("com.example::{name}",)

    def reference(self, x, strength=2.0):
        return x * 2

    def decompose(self, g: Builder, x: Value, strength: float = 2.0):
        return x * 2.0

    def cases(self):
        yield Case(f32(2, 3))
"""


def one(operator: str, attributes: str = "") -> str:
    return HEAD + f"main (float[2, 3] x) => (float[2, 3] y) {{ y = {operator} {attributes} (x) }}"


def command_of(message: str, flag: str) -> list[str]:
    """The first advice with ``flag`` in the message, as arguments."""
    found = re.search(rf'{flag} (?:"([^"]+)"|(\S+?)(?=[;\s]|$))', message)
    assert found is not None, message
    return [flag, found[1] or found[2]]


@pytest.mark.parametrize(
    ("text", "given", "flag"),
    [
        (ROLL, ["--passes", "roll"], "--passes"),
        (one("com.example.Rolll", "<shift: ints = [1], dims: ints = [1]>"), [], "--bind"),
        (one("x.y.Roll", "<shifts: ints = [1], dims: ints = [1]>"), [], "--passes"),
        (
            ROLL.replace("Swish", "Swishh").replace("Roll", "Rolls"),
            ["--bind", "com.example::Rolls=roll"],
            "--bind",
        ),
    ],
    ids=["installed", "near", "namesake", "near, beside a rule"],
)
def test_the_advice_works(rewrite: Rewrite, tmp_path: Path, text: str, given: list[str], flag: str) -> None:
    source = write(tmp_path / "in.onnx", text)
    done = rewrite(source, tmp_path / "out.onnx", *given, *QUICK)
    assert done.code == 1
    advice = command_of(done.err, flag)
    kept = [] if flag == "--passes" else given
    again = rewrite(source, tmp_path / "out.onnx", *kept, *advice, *QUICK)
    assert again.code == 0, again.err
    assert "then " not in rewrite(source, *given).out or advice[1] in rewrite(source, *given).out


def test_an_installed_pass_is_named_beside_those_that_were(rewrite: Rewrite, roll: Path) -> None:
    out = roll.with_name("out.onnx")
    assert "pass 'swish' takes it: --passes roll,swish;" in rewrite(roll, out, "--passes", "roll").err
    assert "pass 'swish' takes it: --passes roll,swish" in rewrite(roll, "--passes", "roll").out
    both = rewrite(roll, out, "--passes", "mish").err
    assert "installed passes take all of them: --passes mish,roll,swish" in both
    with pytest.raises(rewriter.errors.LeftoverPlaceholderError, match="--passes roll,swish"):
        rewriter.rewrite(parse(ROLL), passes=["roll"])


def test_what_nobody_knows_needs_a_pass_of_its_own(
    rewrite: Rewrite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pass is offered that means something else, and the command that is named works once the file is there."""
    source, out = write(tmp_path / "in.onnx", one("com.example.SquaredRelu")), tmp_path / "out.onnx"
    told = rewrite(source, out).err
    assert "square_plus_one" not in told
    assert "write a pass for it: --passes auto,./my_ops.py (docs/writing-a-pass.md)" in told
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_ops.py").write_text(OWN.format(name="MySpecialOp"))
    source = write(tmp_path / "in.onnx", UNKNOWN)
    advice = command_of(rewrite(source, out).err, "--passes")
    assert advice == ["--passes", "auto,./my_ops.py"]
    done = rewrite(source, out, *advice, *QUICK)
    assert done.code == 0, done.err
    alone = rewrite(source, out, "--passes", "./my_ops.py").err
    assert "pass 'roll' takes it: --passes ./my_ops.py,roll" in alone


def test_a_pass_that_was_named_comes_before_those_of_auto(rewrite: Rewrite, roll: Path) -> None:
    file = roll.with_name("my_ops.py")
    file.write_text(OWN.format(name="Swish"))
    done = rewrite(roll, roll.with_name("out.onnx"), "--passes", f"auto,{file}", *QUICK)
    assert done.code == 0, done.err
    assert "own" in done.out
