"""``rewrite --against``: each form, each way to get it wrong, and what a failing run leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from tests.against import nets
from tests.against.conftest import args

PACKAGE = """
from tests.against.nets import Net, build, rescaled
import torch

raises = property(lambda self: 1)

class Deep:
    class Inner(Net):
        pass

def argument(size):
    pass
"""


@pytest.fixture
def files(tmp_path, model, archive, monkeypatch):
    """A folder to work in: the model, its archive, recorded values, and a package of one's own."""
    onnx.save(model, tmp_path / "net.onnx")
    (tmp_path / "net.pt2").write_bytes(archive.read_bytes())
    x, other = args(4)
    with torch.no_grad():
        made = nets.Net().eval()(x, other)
    results = [made["sum"], *made["parts"]]
    values = {"x": x.numpy(), "other": other.numpy()}
    names = [output.name for output in model.graph.output]
    values |= {name: result.numpy() for name, result in zip(names, results, strict=True)}
    np.savez(tmp_path / "io.npz", **values)
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    for role, values_of in (("input", ["x", "other"]), ("output", names)):
        for position, name in enumerate(values_of):
            data = numpy_helper.from_array(values[name]).SerializeToString()
            (folder / f"{role}_{position}.pb").write_bytes(data)
    (tmp_path / "mymodels.py").write_text(PACKAGE)
    (tmp_path / "brokenmodels.py").write_text("raise RuntimeError('at import')\n")
    (tmp_path / "weights.pth").write_bytes(b"PK")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("mymodels", None)


@pytest.mark.parametrize(
    ("against", "kind"),
    [
        ("net.pt2", "torch.export archive"),
        ("mymodels:build", "PyTorch module"),
        ("mymodels:Net", "PyTorch module"),
        ("mymodels:Deep.Inner", "PyTorch module"),
        ("tests.against.nets:instance", "PyTorch module"),
        ("mymodels.py:build", "PyTorch module"),
        ("./mymodels.py:Deep.Inner", "PyTorch module"),
        ("io.npz", "recorded values"),
        ("test_data_set_0", "recorded values"),
        (".", "recorded values"),
    ],
)
def test_every_form(rewrite, files, against, kind):
    done = rewrite("net.onnx", "out.onnx", "--no-simplify", "--against", against, "--report", "r.json")
    assert done.code == 0, done.err
    report = json.loads((files / "r.json").read_text())
    assert report["outcome"] == "verified"
    found = report["verification"]["whole_model"]
    assert found["kind"] == kind
    assert f"({kind}) agrees on {found['samples']} sample" in done.out
    assert f"the whole model: {kind}" in done.out
    stamped = json.loads(
        next(p.value for p in onnx.load("out.onnx").metadata_props if p.key == "rewriter.manifest")
    )
    assert f"the whole model: {kind}" in stamped["verification"]["against"]
    assert str(files) not in (files / "r.json").read_text()
    assert str(files) not in sys.path


@pytest.mark.parametrize(
    ("against", "told"),
    [
        ("missing.pt2", "no such file"),
        ("net.onnx", "neither a .pt2 archive nor a .npz file"),
        ("weights.pth", "neither a .pt2 archive nor a .npz file"),
        ("missing", "no such file, folder or import path"),
        ("missing.npz", "cannot be read"),
        ("empty", "holds no recorded values"),
        ("nowhere:build", "there is no module 'nowhere'"),
        ("nowhere:build", "or give a file: ./models.py:build"),
        ("nowhere.py:build", "there is no file 'nowhere.py'"),
        ("mymodels:nothing", "there is no 'nothing' in 'mymodels'"),
        ("mymodels:buidl", "did you mean build?"),
        ("./mymodels.py:buidl", "did you mean build?"),
        ("mymodels:Deep.Iner", "did you mean Inner?"),
        ("./mymodels.py", "names nothing in the file"),
        ("mymodels.py", "as in mymodels.py:"),
        ("brokenmodels.py:build", "RuntimeError: at import"),
        ("mymodels:torch", "is a module, no torch.nn.Module"),
        ("mymodels:argument", "cannot be called without arguments"),
        ("brokenmodels:build", "importing it raises RuntimeError: at import"),
        ("mymodels", "no such file, folder or import path"),
    ],
)
def test_what_cannot_be_used_is_bad_usage(rewrite, files, against, told):
    done = rewrite("net.onnx", "out.onnx", "--against", against, "--report", "r.json")
    assert done.code == 2
    assert told in done.err
    assert not (files / "out.onnx").exists()
    failure = json.loads((files / "r.json").read_text())["failure"]
    assert (failure["code"], failure["exit_code"]) == ("usage", 2)


def test_a_broken_archive_is_bad_usage_and_prints_one_message(rewrite, files):
    (files / "net.pt2").write_bytes((files / "net.pt2").read_bytes()[:2000])
    done = rewrite("net.onnx", "out.onnx", "--against", "net.pt2")
    assert done.code == 2
    assert "no archive that torch" in done.err
    assert len(done.err.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["net.onnx", "out.onnx", "--no-verify"], "--no-verify compares nothing"),
        (["net.onnx"], "says nothing to an inspection"),
        (["net.onnx", "out.onnx", "--report", "net.pt2"], "would overwrite 'net.pt2'"),
    ],
)
def test_combinations_without_sense(rewrite, files, arguments, told):
    before = (files / "net.pt2").read_bytes()
    done = rewrite(*arguments, "--against", "net.pt2")
    assert done.code == 2
    assert told in done.err
    assert (files / "net.pt2").read_bytes() == before


def test_a_difference_ends_with_one_and_writes_nothing(rewrite, files):
    (files / "out.onnx").write_bytes(b"as it was")
    done = rewrite("net.onnx", "out.onnx", "--against", "mymodels:rescaled", "--report", "r.json")
    assert done.code == 1
    assert "differs from mymodels:rescaled" in done.err
    assert "the export, first at Mul" in done.err
    assert (files / "out.onnx").read_bytes() == b"as it was"
    report = json.loads((files / "r.json").read_text())
    assert (report["outcome"], report["failure"]["code"]) == ("failed", "mismatch")
    verification = report["verification"]
    assert verification["verdict"] == "failed"
    assert set(verification["blame"]) == {"stage", "node", "operator", "line", "scope", "detail", "cause"}
    assert verification["blame"]["stage"] == "export"
    assert verification["blame"]["operator"] == "Mul"
    assert verification["whole_model"]["outputs"][0]["max_abs"] > 0.1


def test_without_pytorch_recorded_values_still_serve(files):
    """A model without placeholders, held against recorded values."""
    from tests.texts import write

    write(
        files / "plain.onnx",
        '<ir_version: 8, opset_import: ["" : 17]> main (float[n] x) => (float[n] y) { y = Neg(x) }',
    )
    x = np.arange(3, dtype=np.float32)
    np.savez(files / "plain.npz", x=x, y=-x)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from rewriter.cli import run\n"
        "sys.exit(run(['plain.onnx', 'out.onnx', '--no-simplify', '--against', sys.argv[1]]))"
    )
    for against, expected in (("plain.npz", 0), ("net.pt2", 1), ("mymodels:build", 1)):
        done = subprocess.run(
            [sys.executable, "-c", code, against], capture_output=True, text=True, check=False, env=os.environ
        )
        assert done.returncode == expected, done.stderr
        assert expected == 0 or "PyTorch is not installed" in done.stderr


def test_help_tells_the_forms(rewrite):
    text = rewrite("--help").out
    assert "--against" in text
    assert "test_data_set_0" in text
