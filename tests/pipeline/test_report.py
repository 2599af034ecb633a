"""The views of a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rewriter.errors import ModelReadError, Where
from rewriter.report import (
    Declared,
    Failure,
    Replaced,
    Report,
    Simplified,
    Written,
    as_text,
    size_text,
    to_json,
)


def report() -> Report:
    def roll(node: str, via: tuple[str, ...] = ()) -> Replaced:
        where = Where("main graph", node, "com.example::Roll", "net.py:3")
        return Replaced(
            "com.example::Roll", "roll", "slices", "why", ("Slice", "Slice", "Concat"), where, via=via
        )

    return Report(
        "in.onnx",
        "out.onnx",
        outcome="unverified",
        replaced=[roll("a"), roll("b"), roll("c", via=("com.example::Outer",))],
        kept=[Declared("com.example", "Op", 3, 2, "libop.so", "0" * 64)],
        runtime_operators=[Declared("com.microsoft", "Gelu", 1, 1)],
        unmatched_passes=["swish"],
        unmatched_rules=["a::b=roll"],
        renamed_dims=["'y' axis 0: 'Addy_dim_0' now batch"],
        stripped_bytes=2048,
        simplification=Simplified(True, "everything", 10, 7, ("a note",)),
        opset_imports={"": 17, "com.example": 3},
        ir_version=8,
        warnings=["careful"],
        written=Written("out.onnx", 3 << 20, "out.onnx.data", 5 << 30),
    )


@pytest.mark.parametrize(
    "line",
    [
        "replaced    2 × com.example::Roll → Concat, 2 Slice  (pass roll, slices)",
        "kept        2 × com.example::Op version 3, runs with libop.so",
        "            1 × com.microsoft::Gelu version 1, which belongs to a runtime",
        "stripped    2.0 KB of the exporter's debugging information",
        "simplified  10 → 7 nodes",
        "needs       opset ai.onnx 17, com.example 3; IR version 8",
        "unverified  not compared with PyTorch, as asked",
        "note        pass 'swish' matched nothing",
        "            --bind 'a::b=roll' matched nothing",
        "warning     careful",
        "wrote       out.onnx, 3.0 MB, with out.onnx.data, 5.0 GB",
    ],
)
def test_lines(line: str) -> None:
    assert line in report().text().splitlines()


def test_a_thousand_invented_dims_are_one_short_line() -> None:
    many = report()
    many.renamed_dims = [f"'v{n}' axis 0: 'Addv{n}_dim_0' now batch" for n in range(1000)]
    many.renamed_outputs = {"v7": ["axis 0: 'Addv7_dim_0' now batch"]}
    line = "1000 dims that the exporter had invented are renamed or open now, of outputs: v7 (-v lists them)"
    assert f"{'':12}{line}" in many.text().splitlines()
    assert "'v12' axis 0: 'Addv12_dim_0' now batch" in many.text(verbose=True)
    assert len(many.to_dict()["renamed_dims"]) == 1000


def test_verbose_names_each_place_and_reason() -> None:
    assert "com.example::Roll 'b' (net.py:3): why" in report().text(verbose=True)
    assert "com.example::Roll 'b'" not in report().text()


def test_json_holds_everything() -> None:
    data = json.loads(report().to_json())
    assert [entry["node"] for entry in data["replaced"]] == ["a", "b", "c"]
    assert data["replaced"][2]["via"] == ["com.example::Outer"]
    assert data["kept"][0]["library"] == "libop.so"
    assert data["simplification"]["notes"] == ["a note"]
    assert data["written"]["data_size"] == 5 << 30
    assert "model" not in data


def test_json_is_strict() -> None:
    text = to_json(
        {"nan": float("nan"), "inf": float("-inf"), "bytes": b"\xff", "path": Path("p"), "t": (1, 2)}
    )
    assert json.loads(text, parse_constant=pytest.fail) == {
        "nan": "nan",
        "inf": "-inf",
        "bytes": "\\xff",
        "path": "p",
        "t": [1, 2],
    }


def test_failures_lose_the_folders_of_the_run() -> None:
    error = ModelReadError("no /a/b/w.bin, no /c/w.bin", where="/a/b/in.onnx", remedy="look in /a/b")
    failure = Failure.of(error, [Path("/a/b")])
    assert failure.what == "no w.bin, no /c/w.bin"
    assert failure.where == "in.onnx"
    assert failure.remedy == "look in the folder"
    assert (failure.code, failure.exit_code) == ("unreadable-model", 2)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KB"), (1 << 20, "1.0 MB"), (1 << 41, "2048.0 GB")],
)
def test_size(size: int, text: str) -> None:
    assert size_text(size) == text


def test_no_lines() -> None:
    assert as_text([]) == ""
