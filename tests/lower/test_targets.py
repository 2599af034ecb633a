"""``target``: what a runtime takes decides on opset, IR version and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import pytest
from onnx import parser

import rewriter
from rewriter.errors import TargetError, UsageError
from rewriter.placeholder import Case, Placeholder, Value, decomposition, f32
from rewriter.profiles import profiles, wanted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rewriter.placeholder import Builder

#: GridSample, Gelu and GroupNormalization came after opset 13; the form of GridSample changed at 20.
LATE = """
<ir_version: 10, opset_import: ["" : 21]>
main (float[N,8,6,6] x, float[8] s, float[8] b, float[N,5,5,2] g) => (float[N,8,5,5] y)
{
  n = GroupNormalization<num_groups=2>(x, s, b)
  e = Gelu(n)
  y = GridSample(e, g)
}"""
ROI = """
<ir_version: 10, opset_import: ["" : 22]>
main (float[1,4,6,6] x, float[2,4] boxes, int64[2] which) => (float[2,4,2,2] y)
{ y = RoiAlign<output_height=2, output_width=2>(x, boxes, which) }"""
IF = """
<ir_version: 9, opset_import: ["" : 19]>
main (bool c, float[2] x) => (float[2] y)
{ y = If(c) <then_branch = a () => (float[2] p) { p = Relu(x) }, else_branch = b () => (float[2] q) { q = Abs(x) }> }"""


class Bent(Placeholder):
    """HardSwish, by the operator of ONNX where there is one."""

    matches = ("Bent",)

    def reference(self, x: Any) -> Any:
        import torch

        return torch.nn.functional.hardswish(x)

    @decomposition(opset=14)
    def native(self, g: Builder, x: Value) -> Value:
        return cast("Value", g.op("HardSwish", x))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3))


class Bent2(Bent):
    """The same, with a form of its own for old opsets."""

    matches = ("Bent",)

    @decomposition(opset=11)
    def plain(self, g: Builder, x: Value) -> Value:
        return x * g.clip(x / 6 + 0.5, 0.0, 1.0)


def brought(text: str, target: Any, **options: Any) -> onnx.ModelProto:
    found = rewriter.rewrite(
        parser.parse_model(text), target=target, simplify=False, verify=False, **options
    ).model
    assert found is not None
    onnx.checker.check_model(found)
    return found


def opset(model: onnx.ModelProto) -> int:
    return int(model.opset_import[0].version)


def operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node}


def profile(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("text", "target", "chosen", "ir_version"),
    [
        (LATE, "onnxruntime==1.32", 21, 10),
        (LATE, "onnxruntime==1.17", 20, 9),
        # It takes 19, but lacks Shape there, which the forms need.
        (LATE, "onnxruntime==1.15", 18, 9),
        (LATE, "onnxruntime==1.15.1,tract", 18, 9),
        (LATE, ["tensorrt==8.2", "onnxruntime==1.32"], 13, 10),
        # Its kernels end at opset 21.
        (ROI, "onnxruntime==1.32", 21, 10),
        # If of opset 19 cannot be written in another way.
        (IF, "onnxruntime==1.15", 18, 9),
        (IF, "openvino", 19, 9),
    ],
)
def test_the_highest_opset_that_serves(text: str, target: Any, chosen: int, ir_version: int) -> None:
    model = brought(text, target)
    assert (opset(model), model.ir_version) == (chosen, ir_version)


def test_what_a_target_lacks_is_not_in_the_result() -> None:
    assert "GridSample" in operators(brought(LATE, "tensorrt==8.6"))
    assert not operators(brought(LATE, "rknn")) & {"GridSample", "Gelu", "GroupNormalization"}


def test_a_kept_operator_stays_whatever_the_target_lacks() -> None:
    assert "GridSample" in operators(brought(LATE, "rknn", no_expand="GridSample"))


def test_versions_between_rows_take_the_older_one() -> None:
    found = wanted("onnxruntime==1.16.3")
    assert found is not None
    assert found.names == ["onnxruntime 1.15"]
    assert len(found.notes) == 1
    exact = wanted("OnnxRuntime==1.15.1")
    assert exact is not None
    assert (exact.names, exact.notes) == (["onnxruntime 1.15"], ())


@pytest.mark.parametrize(
    "options",
    [
        {"target": "nosuch"},
        {"target": "onnxruntime==0.9"},
        {"target": "onnxruntime==new"},
        {"target": "ncnn"},
        {"target": "onnxruntime==1.15", "opset": 20},
        {"target": "onnxruntime==1.15", "ir_version": 10},
        {"target": "./none.toml"},
    ],
    ids=str,
)
def test_what_cannot_be_a_target(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        brought(LATE, **options)


def test_an_opset_that_is_not_known_is_asked_for() -> None:
    model = brought(LATE, "mnn", opset=17)
    assert opset(model) == 17
    assert not operators(model) & {"Gelu", "GroupNormalization"}


def test_what_stays_lacking_is_an_error_that_names_it() -> None:
    loop = """
<ir_version: 8, opset_import: ["" : 17]>
main (int64 n, bool c, float[2] x) => (float[2] y)
{ y = Loop(n, c, x) <body = b (int64 i, bool k, float[2] p) => (bool l, float[2] q)
  { l = Identity(k)
    q = Add(p, p) }> }"""
    with pytest.raises(TargetError, match="Loop"):
        brought(loop, "tract")
    local = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
main (float[2] x) => (float[2] y) { y = local.f(x) }
<domain: "local", opset_import: ["" : 17]> f (a) => (b) { b = Relu(a) }"""
    with pytest.raises(TargetError) as caught:
        brought(local, "openvino")
    assert any("functions" in detail for detail in caught.value.details)


def test_a_model_at_the_target_is_copied(tmp_path: Path) -> None:
    onnx.save(parser.parse_model(IF.replace("19", "17").replace(": 9,", ": 8,")), tmp_path / "a.onnx")
    report = rewriter.rewrite(tmp_path / "a.onnx", tmp_path / "b.onnx", target="onnxruntime==1.15")
    assert report.outcome == "copied"
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_an_inspection_and_a_check_tell_the_same(tmp_path: Path) -> None:
    onnx.save(parser.parse_model(LATE), tmp_path / "a.onnx")
    found = rewriter.inspect(tmp_path / "a.onnx", target="onnxruntime==1.15")
    assert (found.opset, found.targets) == (18, ["onnxruntime 1.15"])
    assert {item.operator for item in found.lowered} == {"GroupNormalization", "Gelu", "GridSample"}
    before = rewriter.requirements(tmp_path / "a.onnx", target="rknn")
    assert not before.good
    assert {"GridSample", "GroupNormalization"} <= set(before.targets[0].reasons)
    rewriter.rewrite(tmp_path / "a.onnx", tmp_path / "b.onnx", target="rknn,onnxruntime==1.15")
    after = rewriter.requirements(tmp_path / "b.onnx", target="rknn,onnxruntime==1.15")
    assert [item.verdict for item in after.targets] == ["has", "has"]
    assert after.good


COLUMNS = """
<ir_version: 9, opset_import: ["" : 19]>
main (float[N,18,25] x) => (float[N,2,7,7] y)
{ s = Constant<value_ints = [7, 7]>()
  b = Constant<value_ints = [3, 3]>()
  y = Col2Im(x, s, b) }"""
PRODUCTS = """
<ir_version: 13, opset_import: ["" : 26]>
main (float[2,3] x) => (float[2,3] y)
{ a = Constant<value_int = 1>()
  y = CumProd(x, a) }"""


@pytest.mark.parametrize(
    ("runtime", "text", "gone"),
    [("onnxruntime==1.15", LATE, "Gelu"), ("openvino", PRODUCTS, "CumProd"), ("tract", COLUMNS, "Col2Im")],
)
def test_the_result_is_right_on_the_runtime(tmp_path: Path, runtime: str, text: str, gone: str) -> None:
    onnx.save(parser.parse_model(text), tmp_path / "a.onnx")
    here = runtime if "=" not in runtime else None
    if here is not None:
        pytest.importorskip(here)
    report = rewriter.rewrite(
        tmp_path / "a.onnx", tmp_path / "b.onnx", target=runtime, runtimes=here, strict=True, samples=1
    )
    assert report.outcome == "verified"
    assert gone in {item.operator for item in report.replaced}


@pytest.mark.parametrize(("taken", "chosen"), [(Bent, ["native", "opset 17"]), (Bent2, ["plain"])])
def test_a_pass_takes_the_decomposition_that_the_target_has(
    tmp_path: Path, taken: type[Placeholder], chosen: list[str]
) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
main (float[3] x) => (float[3] y) { y = com.example.Bent(x) }"""
    target = profile(tmp_path, 'max_opset = 17\nlacks = ["HardSwish"]')
    report = rewriter.rewrite(parser.parse_model(text), passes=[taken], target=target)
    assert report.outcome == "verified"
    assert [item.decomposition for item in report.replaced] == chosen
    assert report.model is not None
    assert "HardSwish" not in operators(report.model)


CONDITIONS = [
    ('{operator = "GridSample", when = {attribute = "mode", is = ["linear"]}}', True),
    ('{operator = "GridSample", when = {attribute = "mode", is = ["cubic"]}}', False),
    ('{operator = "GridSample", when = {attribute = "align_corners", not = [1]}}', True),
    ('{operator = "GridSample", when = {input = 0, rank = [4]}}', True),
    ('{operator = "GridSample", when = {input = 0, rank = [5]}}', False),
    ('{operator = "GridSample", when = {input = 0, dtype = ["double"]}}', False),
    ('{operator = "GridSample", when = {input = 1, constant = false}}', True),
    ('{operator = "GridSample", since = 22}', False),
    ('{operator = "GridSample", until = 20}', False),
]


@pytest.mark.parametrize(("gap", "expanded"), CONDITIONS)
def test_gaps_of_a_profile_of_ones_own(tmp_path: Path, gap: str, expanded: bool) -> None:
    target = profile(tmp_path, f'name = "Jetson"\nmax_opset = 21\nlacks = [{gap}]\n')
    assert ("GridSample" not in operators(brought(LATE, target))) == expanded


def test_types_that_a_target_lacks_go_through_wider_ones(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> main (uint8[3] a, uint8[3] b) => (uint8[3] y) { y = Add(a, b) }'
    target = profile(
        tmp_path, 'max_opset = 17\nlacks = [{operator = "Add", when = {input = 0, dtype = ["uint8"]}}]'
    )
    model = brought(text, target)
    assert operators(model) == {"Cast", "Add"}
    session = rewriter.rewrite(parser.parse_model(text), target=target)
    assert session.outcome == "verified"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_opset = 17\nlack = []", "lack"),
        ('max_opset = "17"', "max_opset"),
        ("max_opset = 0", "max_opset"),
        ('lacks = ["GridSampel"]', "lacks[0].operator"),
        ('lacks = [{how = "refused"}]', "lacks[0]"),
        ('lacks = ["Relu", {operator = "Abs", how = "slow"}]', "lacks[1].how"),
        ('lacks = [{operator = "Abs", when = {rank = [4]}}]', "lacks[0].when"),
        ('lacks = [{operator = "Abs", when = {input = 0, dtype = ["f32"]}}]', "lacks[0].when.dtype"),
        ('refuses = ["weights"]', "refuses"),
        ('name = "a"\nmax_opset = 1 7', "line 2"),
    ],
)
def test_faults_of_a_profile_are_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        wanted(profile(tmp_path, text))
    assert told in caught.value.what


def test_simplification_brings_nothing_back(tmp_path: Path) -> None:
    # onnxsim makes a Gemm of these; the target lacks it.
    weights = np.eye(4, dtype=np.float32)
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 13]> main (float[2,4] x) => (float[2,4] y) '
        "{ m = MatMul(x, w) y = Add(m, c) }".replace(") y", ")\n y")
    )
    model.graph.initializer.extend(
        [onnx.numpy_helper.from_array(weights, "w"), onnx.numpy_helper.from_array(weights[0], "c")]
    )
    target = profile(tmp_path, 'max_opset = 13\nlacks = ["Gemm"]')
    found = rewriter.rewrite(model, target=target, expand="Erf").model
    assert found is not None
    assert "Gemm" not in operators(found)


def test_every_profile_that_runs_here_is_of_the_installed_version() -> None:
    assert {row.runs_as for row in profiles() if row.runs_as} == {
        "onnxruntime",
        "openvino",
        "tract",
        "reference",
    }
