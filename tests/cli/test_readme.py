"""The README's code and commands run as they stand, in order, in an empty folder.

A comment before each block says what it is: ``file: NAME`` is written under that name, ``run`` is executed, ``install``
and ``dev`` are not run here (the environment of the tests is what they make).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"^(?:<!-- (?P<kind>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def run(text: str, language: str, folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = ["sh", "-euc", text] if language == "sh" else [sys.executable, "-c", text]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_block_runs(tmp_path: Path) -> None:
    shown = ""
    for block in BLOCK.finditer(README):
        kind, language, text = block["kind"], block["language"], block["text"]
        assert kind is not None, f"a block without a mark:\n{text}"
        if kind.startswith("file: "):
            (tmp_path / kind.removeprefix("file: ")).write_text(text, encoding="utf-8")
        elif kind == "run":
            shown += run(text, language, tmp_path)
        else:
            assert kind in ("install", "dev")
    assert "com.example::Roll → pass roll" in shown or "aten::roll → pass roll" in shown
    assert shown.count("verified") >= 3
    assert (tmp_path / "plain.onnx").exists()


def test_a_first_pass_has_about_twenty_lines() -> None:
    (block,) = (b for b in BLOCK.finditer(README) if b["kind"] == "file: my_ops.py")
    assert len(block["text"].strip().splitlines()) <= 25


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_make_target_exists() -> None:
    (block,) = (b for b in BLOCK.finditer(README) if b["kind"] == "dev")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([\w-]+)", block["text"], re.MULTILINE):
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target


def test_every_option_in_it_exists() -> None:
    from rewriter.cli import command

    known = {option for parameter in command.params for option in parameter.opts}
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README))
    assert mentioned <= known | {"--strict", "--help"}
