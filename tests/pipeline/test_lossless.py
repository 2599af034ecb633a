"""With simplification off, nothing but the placeholder, its import and the stamp changes, from file to file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest

import rewriter
from rewriter.errors import OpsetError
from tests.decompose.filled import filled_model
from tests.decompose.passes import Affine
from tests.decompose.test_lossless import DEPTHS, add_placeholder, sample, without_the_new

if TYPE_CHECKING:
    from pathlib import Path

STAMP = {"custom_op_info", "rewriter.manifest"}


def without_stamp(path: Path) -> onnx.ModelProto:
    model = onnx.ModelProto.FromString(path.read_bytes())
    kept = [prop for prop in model.metadata_props if prop.key not in STAMP]
    assert len(model.metadata_props) - len(kept) == len(STAMP)
    raw = [prop.SerializeToString() for prop in kept]
    del model.metadata_props[:]
    for data in raw:
        model.metadata_props.add().MergeFromString(data)
    return model


@pytest.mark.parametrize("full", DEPTHS)
def test_backend_models_with_nothing_to_replace_are_copied(tmp_path: Path, full: bool) -> None:
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    for name, model in sample(full):
        source.write_bytes(model.SerializeToString())
        report = rewriter.rewrite(source, target, simplify=False)
        assert report.outcome == "copied", name
        assert target.read_bytes() == source.read_bytes(), name


@pytest.mark.parametrize("full", DEPTHS)
def test_backend_models_with_a_placeholder_keep_everything_else(tmp_path: Path, full: bool) -> None:
    path = tmp_path / "m.onnx"
    for name, source in sample(full):
        model = onnx.ModelProto()
        model.CopyFrom(source)
        add_placeholder(model)
        path.write_bytes(model.SerializeToString())
        try:
            rewriter.rewrite(path, path, passes=[Affine], simplify=False, verify=False)
        except OpsetError:
            assert {o.domain: o.version for o in source.opset_import}.get("", 0) < 11
            continue
        assert without_the_new(without_stamp(path), {"rewriter.y"}) == source, name


def test_a_model_with_every_field_set(tmp_path: Path) -> None:
    source = filled_model()
    path = tmp_path / "m.onnx"
    path.write_bytes(source.SerializeToString())
    report = rewriter.rewrite(path, tmp_path / "out.onnx", passes=[Affine], simplify=False, verify=False)
    result = without_stamp(tmp_path / "out.onnx")
    assert [replaced.where.node for replaced in report.replaced] == ["placeholder"]
    expected = onnx.ModelProto.FromString(path.read_bytes())
    del expected.graph.node[-1], expected.opset_import[-1]
    del result.graph.node[-2:], result.graph.initializer[-2:], result.graph.value_info[-1]
    assert result.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


def test_a_model_with_every_field_set_and_nothing_to_replace(tmp_path: Path) -> None:
    source = filled_model()
    del source.graph.node[-1]
    (tmp_path / "in.onnx").write_bytes(source.SerializeToString())
    rewriter.rewrite(tmp_path / "in.onnx", tmp_path / "out.onnx", simplify=False)
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "in.onnx").read_bytes()
