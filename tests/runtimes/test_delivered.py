"""``--runtimes``: the delivered file on other runtimes."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import rewriter
from rewriter.cli import run as command
from rewriter.profiles.names import parse, runtimes
from rewriter.runtimes import driver
from rewriter.runtimes.driver import Expected, run
from rewriter.runtimes.exchange import pack, unpack
from rewriter.storage import ModelFile
from rewriter.verify import VerifyOptions
from tests.texts import ROLL, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TWICE = """
<ir_version: 8, opset_import: ["" : 17]>
main (float[N, 3] x) => (float[N, 3] twice, int64[N] best)
<float[1] two = {2}>
{ twice = Mul (x, two)  best = ArgMax <axis = 1, keepdims = 0> (x) }
"""

#: An operator of onnxruntime's own.
OWN = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "com.example" : 1]>
main (float[2, 4] x) => (float[2, 2] y)
{ a = com.microsoft.CDist <metric = "euclidean"> (x, x)  y = com.example.Swish (a) }
"""

KEPT = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
main (float[2, 3] x) => (float[2, 3] y)
<float[2, 3] a>
{ a = com.example.Mystery (x)  y = Relu (a) }
"""


def expected(array: Any) -> Expected:
    x = np.asarray(array, np.float32)
    return Expected({"x": x}, {"twice": 2 * x, "best": x.argmax(1)}, f"N={len(x)}")


def outcome(
    samples: list[Expected], names: str = "all", *, text: str = TWICE
) -> dict[str, driver.RuntimeResult]:
    with ModelFile.from_proto(onnx.parser.parse_model(text)) as file:
        return {r.name: r for r in run(parse(names), file, file.model, samples, VerifyOptions())}


def test_every_runtime_agrees_on_every_sample() -> None:
    results = outcome([expected(np.ones((2, 3))), expected(np.arange(12).reshape(4, 3))])
    assert list(results) == list(runtimes())
    for result in results.values():
        assert (result.status, result.detail) == ("agrees", ""), result
        assert result.version
        assert [(c.name, c.samples, c.max_abs) for c in result.outputs] == [("twice", 2, 0), ("best", 2, 0)]


def test_a_difference_is_named_with_its_sample() -> None:
    wrong = expected(np.ones((4, 3)))
    wrong.outputs["twice"][3, 1] += 1  # type: ignore[index]
    for result in outcome([expected(np.ones((2, 3))), wrong]).values():
        assert result.status == "differs"
        assert result.detail.startswith("output 'twice' 1 of 12 elements beyond tolerance")
        assert "[3, 1]" in result.detail
        assert result.detail.endswith("(N=4)")


def test_what_is_refused_is_told_in_the_words_of_the_runtime(tmp_path: Path) -> None:
    report = rewriter.rewrite(write(tmp_path / "m.onnx", OWN), tmp_path / "o.onnx", runtimes="all")
    assert report.outcome == "verified"
    found = {r["name"]: r for r in report.to_dict()["verification"]["runtimes"]}
    assert {name: r["status"] for name, r in found.items()} == {
        "onnxruntime": "agrees",
        "openvino": "refuses",
        "tract": "refuses",
        "reference": "refuses",
    }
    assert "CDist" in found["tract"]["detail"]
    assert sum("refuses the delivered file" in line for line in report.verification["warnings"]) == 3  # type: ignore[index]
    assert report.manifest is not None
    assert report.manifest["verification"]["runtimes"] == ["onnxruntime"]


def test_inputs_that_are_refused() -> None:
    bad = Expected({"x": np.ones((2, 5), np.float32)}, {"twice": None, "best": None}, "N=2")
    result = outcome([expected(np.ones((2, 3))), bad], "onnxruntime")["onnxruntime"]
    assert result.status == "refuses"
    assert "invalid dimensions" in result.detail
    assert result.outputs[0].samples == 1


def fake_worker(code: str, folder: Path) -> Path:
    path = folder / "worker.py"
    path.write_text(code)
    return path


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("import os; os.abort()", "killed by SIGABRT"),
        ("raise SystemExit('no such luck')", "no such luck"),
        ("import time; time.sleep(60)", "came to no end in 1 s"),
    ],
)
def test_a_runtime_may_take_its_process_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, detail: str
) -> None:
    monkeypatch.setattr(driver, "_TARGET", f"{fake_worker(code, tmp_path)}:serve")
    monkeypatch.setattr(driver, "TIMEOUT", 1.0)
    result = outcome([expected(np.ones((2, 3)))], "tract")["tract"]
    assert (result.status, result.detail) == ("crashed", detail)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def hide(package: str) -> None:
        find = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *rest: None if name == package else find(name, *rest)
        )

    return hide


def test_one_that_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], without: Callable[[str], None]
) -> None:
    without("tract")
    source, target = str(write(tmp_path / "m.onnx", ROLL)), tmp_path / "o.onnx"
    report = tmp_path / "r.json"
    assert command([source, str(target), "--runtimes", "tract,onnxruntime", "--report", str(report)]) == 0
    told = json.loads(report.read_text())["verification"]["runtimes"]
    assert [r["status"] for r in told] == ["not installed", "agrees"]
    out = capsys.readouterr().out
    assert "onnxruntime" in out
    assert "pip install onnx-rewrite[runtimes]" in out
    target.unlink()
    assert command([source, str(target), "--runtimes", "tract", "--strict"]) == 1
    assert "tract is not installed" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runtimes", "opencvino"], "did you mean 'openvino'?"),
        (["--runtimes", "tract", "--no-verify"], "leave out either"),
    ],
)
def test_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    source = str(write(tmp_path / "m.onnx", ROLL))
    assert command([source, str(tmp_path / "o.onnx"), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_operator_that_is_kept_for_elsewhere(tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx", KEPT)
    report = rewriter.rewrite(
        source, tmp_path / "o.onnx", keep="com.example::Mystery", runtimes=["onnxruntime"]
    )
    assert report.to_dict()["verification"]["runtimes"] == []
    assert any("no other runtime was tried" in line for line in report.verification["warnings"])  # type: ignore[index]


def test_weights_beside_the_file(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(TWICE)
    model.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(np.full((1024, 3), 2, np.float32), model.graph.initializer[0].name)
    )
    onnx.save_model(
        model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    x = np.ones((1024, 3), np.float32)
    sample = Expected({"x": x}, {"twice": 2 * x, "best": x.argmax(1)})
    with ModelFile.open(tmp_path / "m.onnx") as file:
        for result in run(parse("all"), file, file.model, [sample], VerifyOptions()):
            assert result.status == "agrees", result


def test_values_pass_between_processes_as_they_are(tmp_path: Path) -> None:
    values: list[Any] = [
        np.array(["a", "ü"], object),
        np.array(3, np.int64),
        np.zeros((0, 2), np.float16),
        np.array([1.5], ml_dtypes.bfloat16),
        None,
        [np.array([1.0, 2.0]), np.array([3.0])],
    ]
    found = unpack(*pack(values))
    assert len(found) == len(values)
    for got, want in zip(found[:4], values[:4], strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert got.tolist() == want.tolist()
    assert found[4] is None
    assert [item.tolist() for item in found[5]] == [[1.0, 2.0], [3.0]]


def test_formats_that_numpy_lacks() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> main (bfloat16[2] x) => (bfloat16[2] y) { y = Identity (x) }'
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    assert outcome([Expected({"x": x}, {"y": x})], "onnxruntime", text=text)["onnxruntime"].status == "agrees"


def test_a_file_that_was_rewritten_before(tmp_path: Path, without: Callable[[str], None]) -> None:
    first, second = tmp_path / "1.onnx", tmp_path / "2.onnx"
    rewriter.rewrite(write(tmp_path / "m.onnx", ROLL), first)
    report = rewriter.rewrite(first, second, runtimes="onnxruntime,reference")
    assert report.outcome == "copied"
    assert [r["status"] for r in report.verification["runtimes"]] == ["agrees", "agrees"]  # type: ignore[index]
    assert second.read_bytes() == first.read_bytes()
    without("tract")
    with pytest.raises(rewriter.RewriteError, match="tract is not installed"):
        rewriter.rewrite(tmp_path / "m.onnx", tmp_path / "3.onnx", runtimes="tract", strict=True)
