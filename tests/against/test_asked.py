"""Sizes and inputs that the user asked for, where PyTorch refuses them; and what the manifest says was compared."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import onnx
import pytest
import torch
from torch import nn

import rewriter
from rewriter.cli import run as command
from rewriter.errors import CannotVerifyError
from rewriter.page import render
from tests.against.conftest import exported
from tests.against.test_torch import By, run, unary, whole
from tests.stamp.test_manifest import SCHEMA
from tests.texts import parse

ROLLED = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
main (float[b, 5] x) => (float[b, 5] y) { y = com.example.Roll <shifts: ints = [1], dims: ints = [1]> (x) }
"""


class Rolled(nn.Module):
    def forward(self, x):
        return torch.roll(x, 1, 1)


def guarded(high=8):
    b = torch.export.Dim("b", max=high)
    return exported(Rolled(), (torch.randn(3, 5),), {"x": {0: b}})


def limited(x):
    if len(x) > 4:
        raise ValueError("too long")
    return torch.roll(x, 1, 1)


@pytest.mark.parametrize(("net", "words"), [(guarded, ".*8"), (lambda: By(limited), "ValueError: too long")])
def test_a_named_size_that_pytorch_refuses_ends_the_run(net, words):
    model = parse(ROLLED)
    with pytest.raises(CannotVerifyError, match=rf"PyTorch refuses --dim b=64 \(b=64\): {words}"):
        run(model, net(), dims={"b": (2, 64)})
    assert whole(model, net(), dims={"b": (2, 3)})["sizes"] == [{"b": 2}, {"b": 3}]


def test_the_command_fails_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    onnx.save(parse(ROLLED), "r8.onnx")
    torch.export.save(guarded(), "r8.pt2")
    assert command(["r8.onnx", "out.onnx", "--against", "r8.pt2", "--dim", "b=2,64"]) != 0
    assert "--dim b=64" in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


def test_a_named_size_stands_where_one_sample_of_it_was_compared():
    """``m`` is drawn: one that PyTorch takes only in one of the samples leaves a note."""
    model = unary("y = Add(x, z)", "(float[n, 4] x, float[n, m] z) => (float[n, 4] y)")

    def function(x, z, seen=[]):  # noqa: B006
        seen.append(0)
        if len(seen) > 1:
            raise ValueError("only once")
        return x + z

    proof = run(model, By(lambda x, z: function(x, z)), dims={"m": 4, "n": 3})
    found = proof["whole_model"]
    assert found["sizes"] == [{"n": 3, "m": 4}]
    assert [(item["sizes"], item["by"]) for item in found["skipped"]] == [({"n": 3, "m": 4}, "PyTorch")]
    assert any("PyTorch refuses: ValueError: only once" in note for note in proof["notes"])


def test_a_drawn_size_that_nothing_could_stand_for_is_a_note():
    model = unary("y = Neg(x)")
    calls = []

    def function(x):
        calls.append(len(x))
        if len(x) != 2:
            raise ValueError("two rows")
        return -x

    proof = run(model, By(function))
    found = proof["whole_model"]
    assert {"n": 2} in found["sizes"]
    assert all(sizes == {"n": 2} for sizes in found["sizes"])
    assert len(calls) > 3
    assert all(item["by"] == "PyTorch" for item in found["skipped"])


def test_given_inputs_that_pytorch_refuses():
    values = {"x": np.ones((6, 5), np.float32)}
    with pytest.raises(
        CannotVerifyError, match=r"PyTorch refuses the inputs that were given \(b=6\): ValueError: too long"
    ):
        run(parse(ROLLED), By(limited), inputs=values)


def test_sizes_that_do_not_fit_together_are_noted():
    """``n - 1`` at n = 0 is no size."""
    model = unary("y = Neg(x)", '(float[n, 4] x, float["n - 1"] z) => (float[n, 4] y)')
    proof = run(model, By(lambda x, z: -x))
    assert {"n": 1} in proof["whole_model"]["sizes"]
    (skipped,) = proof["whole_model"]["skipped"]
    assert (skipped["sizes"], skipped["by"]) == ({"n": 0}, "")
    assert "do not fit together" in skipped["reason"]


@pytest.mark.parametrize("place", ["main", "function"])
def test_einsum_is_not_run_empty(place):
    """onnxruntime divides by zero, and its process ends."""
    node = 'Einsum <equation = "bch,bcg->bhg"> (x, x)'
    text = (
        f'<ir_version: 9, opset_import: ["": 18]> g (float[n, 3, 4] x) => (float[n, 4, 4] y) {{ y = {node} }}'
    )
    if place == "function":
        text = (
            '<ir_version: 9, opset_import: ["": 18, "own": 1]> g (float[n, 3, 4] x) => (float[n, 4, 4] y) '
            '{ y = own.f(x) } <domain: "own", opset_import: ["": 18]> f (x) => (y) { y = ' + node + " }"
        )
    found = whole(parse(text), By(lambda x: torch.einsum("bch,bcg->bhg", x, x)))
    assert [sizes["n"] for sizes in found["sizes"]] == [2, 5, 1]
    (skipped,) = found["skipped"]
    assert skipped["sizes"] == {"n": 0}
    assert "Einsum" in skipped["reason"]


def test_the_manifest_keeps_the_two_sets_of_sizes_apart():
    model = parse(ROLLED)
    report = rewriter.rewrite(model, against=guarded(4), simplify=False)
    proof = report.manifest["verification"]
    found = report.verification["whole_model"]
    assert proof["sizes"] == report.verification["sizes"]
    assert proof["whole_model"] == {"samples": found["samples"], "sizes": found["sizes"]}
    assert proof["sizes"] == [{"b": 2}, {"b": 5}]
    assert {"b": 5} not in proof["whole_model"]["sizes"]
    assert {"b": 1} in proof["whole_model"]["sizes"]
    jsonschema.validate(json.loads(json.dumps(report.manifest)), SCHEMA)
    assert any(
        "compared with the whole model on" in text and "b=1" in text
        for _, text in rewriter.explain(report.model).lines()
    )
    page = render(rewriter.explain(report.model).to_dict())
    assert "sizes of the whole model" in page
    plain = rewriter.rewrite(model, simplify=False)
    assert "sizes of the whole model" not in render(rewriter.explain(plain.model).to_dict())
    assert "whole_model" not in plain.manifest["verification"]
    jsonschema.validate(plain.manifest, SCHEMA)
