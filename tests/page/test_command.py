"""``--report`` by suffix."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from onnx import helper, save_model

from rewriter.cli import run
from tests.page.conftest import chain, model, parsed, words
from tests.page.test_page import check_safe

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    save_model(chain(1), path)
    return path


def test_both_forms_of_one_run(source: Path) -> None:
    folder = source.parent
    page, data = folder / "r.HTML", folder / "r.json"
    options = ["--no-verify", "-q", "--report", str(page), "--report", str(data)]
    assert run([str(source), str(folder / "out.onnx"), *options]) == 0
    found = json.loads(data.read_text())
    assert found["arguments"] == [
        "m.onnx", "out.onnx", "--no-verify", "-q", "--report", "r.HTML", "--report", "r.json",
    ]  # fmt: skip
    tree = parsed(page.read_text())
    assert "rewrite m.onnx out.onnx --no-verify" in words(tree)
    assert str(folder) not in page.read_text() + data.read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["m.onnx", "out.onnx", "r.HTML", "r.json"]


@pytest.mark.parametrize(
    ("options", "heading", "code"),
    [((), "Inspected", 0), (("--explain",), "No manifest", 1)],
)
def test_pages_of_a_file_as_it_is(source: Path, options: tuple[str, ...], heading: str, code: int) -> None:
    page = source.with_name("r.html")
    assert run([str(source), *options, "-q", "--report", str(page)]) == code
    text = page.read_text()
    check_safe(text)
    assert heading in words(parsed(text))


def test_check_and_explain_of_a_stamped_file(source: Path) -> None:
    target, page = source.with_name("out.onnx"), source.with_name("r.html")
    assert run([str(source), str(target), "--no-verify", "-q"]) == 0
    for option, heading in (("--check", "Runs here"), ("--explain", "Stamped")):
        assert run([str(target), option, "-q", "--report", str(page)]) == 0
        text = words(parsed(page.read_text()))
        assert heading in text
        assert "com.example::Roll" in text


def test_a_file_that_cannot_be_read(source: Path) -> None:
    page = source.with_name("r.html")
    source.write_bytes(b"no model")
    assert run([str(source), str(source.with_name("out.onnx")), "-q", "--report", str(page)]) == 2
    assert "What went wrong" in words(parsed(page.read_text()))


@pytest.mark.parametrize(
    "content", ["<!DOCTYPE html>\n<html><body>mine</body></html>", "import rewriter", "<html>"]
)
def test_a_page_of_another_kind_is_not_overwritten(
    source: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = source.with_name("r.html")
    page.write_text(content)
    assert run([str(source), "--report", str(page)]) == 2
    assert "which is no report" in capsys.readouterr().err
    assert page.read_text() == content


def test_an_older_page_is_replaced(source: Path) -> None:
    page = source.with_name("r.html")
    for _ in range(2):
        assert run([str(source), "-q", "--report", str(page)]) == 0


def test_one_file_cannot_be_two_reports(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = str(source.with_name("r.html"))
    assert run([str(source), "--report", page, "--report", page]) == 2
    assert "overwrite" in capsys.readouterr().err


_BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.full
@pytest.mark.skipif(_BROWSER is None, reason="no browser here")
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_shows_it_without_anything_sticking_out(tmp_path: Path, width: int) -> None:
    node = helper.make_node("Roll", ["x"], ["y"], domain="com.example", name="n" * 300, shifts=[1], dims=[1])
    source, page, outer = tmp_path / "m.onnx", tmp_path / "r.html", tmp_path / "outer.html"
    save_model(model([node], "y"), source)
    assert run([str(source), str(tmp_path / "out.onnx"), "-q", "--report", str(page)]) == 0
    # The page itself runs no script, so one around it measures it.
    sizes = "[d.documentElement.scrollWidth, d.querySelectorAll('svg').length]"
    measure = f"const d = f.contentDocument; document.title = {sizes}"
    outer.write_text(
        f'<iframe id="f" width="{width}" height="2000" src="r.html" onload="{measure}"></iframe>'
    )
    command = [
        str(_BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
        "--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom", outer.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    measured = re.search(r"<title>(\d+),(\d+)</title>", done.stdout)
    assert measured is not None, done.stdout[-500:]
    assert int(measured[1]) <= width
    assert int(measured[2]) > 3
