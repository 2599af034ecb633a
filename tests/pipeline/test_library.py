"""The call: what it takes, what it gives, and that it can do whatever the command can."""

from __future__ import annotations

import inspect as python_inspect
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import rewriter
from rewriter.cli import command
from rewriter.errors import ModelReadError, ModelWriteError, UsageError
from tests.texts import PLAIN, ROLL, parse, write, write_external

if TYPE_CHECKING:
    from pathlib import Path

FAST: dict[str, Any] = {"simplify": False, "verify": False}


def test_every_option_of_the_command_is_an_argument() -> None:
    arguments = set(python_inspect.signature(rewriter.rewrite).parameters)
    renamed = {
        "no_derived": "derived",
        "targets": "target",
        "no_simplify": "simplify",
        "no_verify": "verify",
        "input_range": "input_ranges",
        "dim": "dims",
    }
    of_the_command = {
        "report",
        "check",
        "explain",
        "list_passes",
        "quiet",
        "verbose",
        "debug",
        "version",
        "help",
    }
    for parameter in command.params:
        if parameter.name not in of_the_command:
            assert renamed.get(str(parameter.name), parameter.name) in arguments


def test_path_in_and_out(tmp_path: Path) -> None:
    source = write(tmp_path / "in.onnx", ROLL)
    report = rewriter.rewrite(source, tmp_path / "out.onnx", passes=["roll", "swish"], **FAST)
    assert report.model is None
    assert report.written is not None
    assert report.written.size == (tmp_path / "out.onnx").stat().st_size
    assert {n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node} == {
        "MatMul",
        "Slice",
        "Concat",
        "Sigmoid",
        "Mul",
    }


def test_paths_may_be_strings(tmp_path: Path) -> None:
    rewriter.rewrite(str(write(tmp_path / "in.onnx", ROLL)), str(tmp_path / "out.onnx"), **FAST)
    assert (tmp_path / "out.onnx").exists()


def test_without_target_the_model_is_on_the_report(tmp_path: Path) -> None:
    source = write(tmp_path / "in.onnx", ROLL)
    in_memory = rewriter.rewrite(source, **FAST)
    rewriter.rewrite(source, tmp_path / "out.onnx", **FAST)
    assert in_memory.written is None
    assert in_memory.model == onnx.load(tmp_path / "out.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["in.onnx", "out.onnx"] or len(
        list(tmp_path.iterdir())
    ) == 2


def test_a_model_in_memory_is_not_changed() -> None:
    model = parse(ROLL)
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(5000, np.float32), "large"))
    before = model.SerializeToString()
    report = rewriter.rewrite(model, **FAST)
    assert model.SerializeToString() == before
    assert report.model is not None
    large = next(t for t in report.model.graph.initializer if t.name == "large")
    assert numpy_helper.to_array(large).shape == (5000,)


@pytest.mark.parametrize("limit", [1 << 30, 0])
def test_what_torch_exports(tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from rewriter import source
    from rewriter.torch import export_placeholders

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.roll(self.linear(x), 2, 1)

    monkeypatch.setattr(source, "_INLINE_LIMIT", limit)
    net = Net().eval()
    x = torch.randn(2, 8)
    with export_placeholders("roll"):
        program = torch.onnx.export(net, (x,), dynamo=True, opset_version=18, verbose=False)
    assert program is not None
    report = rewriter.rewrite(program, tmp_path / "out.onnx", verify=False, simplify=False)
    assert [r.by for r in report.replaced] == ["roll"]
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "out.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(found, net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("source", [None, 3, b"bytes", object()])
def test_other_sources_are_refused(source: object) -> None:
    with pytest.raises(UsageError, match=type(source).__name__):
        rewriter.rewrite(source)


def test_no_placeholders_and_no_simplification_is_the_same_file(tmp_path: Path) -> None:
    source = write(tmp_path / "in.onnx", PLAIN)
    report = rewriter.rewrite(source, tmp_path / "out.onnx", simplify=False)
    assert report.outcome == "copied"
    assert (tmp_path / "out.onnx").read_bytes() == source.read_bytes()


def test_no_placeholders_is_simplified_stamped_and_verified(tmp_path: Path) -> None:
    report = rewriter.rewrite(write(tmp_path / "in.onnx", PLAIN), tmp_path / "out.onnx")
    assert report.outcome == "verified"
    model = onnx.load(tmp_path / "out.onnx")
    assert [node.op_type for node in model.graph.node] == ["Relu"]
    assert {prop.key for prop in model.metadata_props} == {"custom_op_info", "rewriter.manifest"}


def test_in_place_with_external_data(tmp_path: Path) -> None:
    path = write_external(tmp_path / "m.onnx", ROLL, "m.weights")
    rewriter.rewrite(path, path, **FAST)
    model = onnx.load(path)
    expected = parse(ROLL).graph.initializer[0]
    np.testing.assert_array_equal(
        numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == "w")),
        numpy_helper.to_array(expected),
    )


def test_given_inputs(tmp_path: Path) -> None:
    x = np.ones((4, 6, 4), np.float32)
    np.savez(tmp_path / "inputs.npz", x=x)
    for inputs in (tmp_path / "inputs.npz", {"x": x}):
        report = rewriter.rewrite(parse(ROLL), simplify=False, inputs=inputs)
        assert report.verification is not None
        assert report.verification["inputs"] == "given"
        assert report.verification["sizes"] == [{"N": 4}]


def test_failure_carries_the_report_and_its_code(tmp_path: Path) -> None:
    model = parse(ROLL)
    model.graph.node[1].attribute[0].name = "shiftz"
    onnx.save(model, tmp_path / "in.onnx")
    with pytest.raises(rewriter.errors.BindingError) as caught:
        rewriter.rewrite(tmp_path / "in.onnx", tmp_path / "out.onnx")
    report = caught.value.report
    assert report is not None
    assert report.outcome == "failed"
    assert report.failure is not None
    assert (report.failure.code, report.failure.exit_code) == ("binding", 1)
    assert "com.example::Roll 'r'" in str(report.failure.where)
    assert not (tmp_path / "out.onnx").exists()


def test_failure_in_the_report_names_no_folder(tmp_path: Path) -> None:
    for source, target in (("no.onnx", "out.onnx"), ("in.onnx", "nowhere/out.onnx")):
        write(tmp_path / "in.onnx", ROLL)
        with pytest.raises((ModelReadError, ModelWriteError)) as caught:
            rewriter.rewrite(tmp_path / source, tmp_path / target)
        assert caught.value.report is not None
        assert str(tmp_path) not in caught.value.report.to_json()


def test_unwritable_output_is_said_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rewriter import pipeline

    monkeypatch.setattr(pipeline, "open_source", None)
    (tmp_path / "folder").mkdir()
    for target in ("nowhere/out.onnx", "folder"):
        with pytest.raises(ModelWriteError):
            rewriter.rewrite(write(tmp_path / "in.onnx", ROLL), tmp_path / target)


def test_report_is_data(tmp_path: Path) -> None:
    import json

    report = rewriter.rewrite(write(tmp_path / "in.onnx", ROLL), tmp_path / "out.onnx", **FAST)
    assert json.loads(report.to_json()) == json.loads(json.dumps(report.to_dict()))
    assert str(report) == report.text()
    assert pickle.loads(pickle.dumps(report)).to_dict() == report.to_dict()
